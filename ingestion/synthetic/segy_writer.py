"""SEG-Y revision 1 as the standard has it, from a generated survey.

Byte positions and codes: SEG Technical Standards Committee, *SEG Y rev 1 Data Exchange format* (May 2002).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ingestion.synthetic.survey import SyntheticSurvey

_SCALAR = -100  # coordinates in centimetres
_FORMAT_CODE = {"ibm": 1, "ieee": 5}

_BINARY_FIELDS = {  # first byte in the file, counted from 1: name
    3213: "traces_per_ensemble",
    3217: "interval",
    3219: "original_interval",
    3221: "samples",
    3223: "original_samples",
    3225: "format",
    3227: "fold",
    3229: "sorting",
    3255: "measurement_system",
    3501: "revision",
    3503: "fixed_length",
}
_TRACE_FIELDS = {  # first byte in the trace header, counted from 1: (name, bytes)
    1: ("sequence_line", 4),
    5: ("sequence_file", 4),
    21: ("ensemble", 4),
    25: ("trace_in_ensemble", 4),
    29: ("trace_id", 2),
    33: ("fold", 2),
    69: ("elevation_scalar", 2),
    71: ("coordinate_scalar", 2),
    73: ("source_x", 4),
    77: ("source_y", 4),
    89: ("coordinate_units", 2),
    109: ("delay", 2),
    115: ("samples", 2),
    117: ("interval", 2),
    181: ("cdp_x", 4),
    185: ("cdp_y", 4),
    189: ("inline", 4),
    193: ("crossline", 4),
}


def write_segy(
    survey: SyntheticSurvey,
    path: Path,
    sample_format: Literal["ibm", "ieee"] = "ibm",
    endian: Literal["big", "little"] = "big",
) -> None:
    """Write the recorded traces of ``survey``, inline by inline, as a revision 1 file.

    Dead traces are written as zeros with trace identification code 2. Both sample formats hold the amplitudes exactly.
    The standard knows big endian only; little endian is what some workstations write.
    """
    order = ">" if endian == "big" else "<"
    inline_index, crossline_index = np.nonzero(survey.recorded_IX)
    samples = survey.amplitude_IXZ.shape[2]
    traces = np.zeros(len(inline_index), dtype=_trace_type(order, sample_format, samples))
    in_line = np.concatenate([np.arange(n) for n in survey.recorded_IX.sum(axis=1)])
    values: dict[str, npt.ArrayLike] = {
        "sequence_line": in_line + 1,
        "sequence_file": np.arange(len(traces)) + 1,
        "ensemble": np.arange(len(traces)) + 1,
        "trace_in_ensemble": 1,
        "trace_id": np.where(survey.live_IX[inline_index, crossline_index], 1, 2),
        "fold": 1,
        "elevation_scalar": 1,
        "coordinate_scalar": _SCALAR,
        "source_x": np.rint(survey.x_IX[inline_index, crossline_index] * -_SCALAR),
        "source_y": np.rint(survey.y_IX[inline_index, crossline_index] * -_SCALAR),
        "coordinate_units": 1,
        "delay": survey.delay_ms,
        "samples": samples,
        "interval": _microseconds(survey),
        "cdp_x": np.rint(survey.x_IX[inline_index, crossline_index] * -_SCALAR),
        "cdp_y": np.rint(survey.y_IX[inline_index, crossline_index] * -_SCALAR),
        "inline": survey.inlines[inline_index],
        "crossline": survey.crosslines[crossline_index],
    }
    for name, value in values.items():
        traces[name] = value
    amplitudes = survey.amplitude_IXZ[inline_index, crossline_index]
    traces["data"] = _to_ibm(amplitudes) if sample_format == "ibm" else amplitudes
    with path.open("wb") as file:
        file.write(_text_header(survey, sample_format))
        file.write(_binary_header(survey, order, sample_format).tobytes())
        traces.tofile(file)


def _trace_type(order: str, sample_format: str, samples: int) -> np.dtype[np.void]:
    return np.dtype(
        {
            "names": [name for name, _ in _TRACE_FIELDS.values()] + ["data"],
            "formats": [f"{order}i{size}" for _, size in _TRACE_FIELDS.values()]
            + [(f"{order}{'u4' if sample_format == 'ibm' else 'f4'}", (samples,))],
            "offsets": [byte - 1 for byte in _TRACE_FIELDS] + [240],
            "itemsize": 240 + 4 * samples,
        }
    )


def _binary_header(survey: SyntheticSurvey, order: str, sample_format: str) -> npt.NDArray[np.void]:
    header = np.zeros(
        1,
        dtype=np.dtype(
            {
                "names": list(_BINARY_FIELDS.values()),
                "formats": [f"{order}i2"] * len(_BINARY_FIELDS),
                "offsets": [byte - 3201 for byte in _BINARY_FIELDS],
                "itemsize": 400,
            }
        ),
    )
    header["traces_per_ensemble"] = 1
    header["interval"] = header["original_interval"] = _microseconds(survey)
    header["samples"] = header["original_samples"] = survey.amplitude_IXZ.shape[2]
    header["format"] = _FORMAT_CODE[sample_format]
    header["fold"] = 1
    header["sorting"] = 4  # horizontally stacked
    header["measurement_system"] = 1  # metres
    header["revision"] = 0x0100
    header["fixed_length"] = 1
    return header


def _text_header(survey: SyntheticSurvey, sample_format: str) -> bytes:
    basin = survey.basin
    written = [
        f"SYNTHETIC SURVEY, BASIN {basin.name.upper()}, SEED {survey.seed}",
        "POST-STACK, TIME MIGRATED IN EFFECT; GENERATED, NOT MEASURED",
        f"INLINES {survey.inlines[0]}-{survey.inlines[-1]} IN BYTES 189-192, "
        f"CROSSLINES {survey.crosslines[0]}-{survey.crosslines[-1]} IN 193-196",
        "CDP X IN BYTES 181-184, CDP Y IN 185-188, SCALAR IN 71-72",
        f"SAMPLE INTERVAL {survey.sample_interval_ms:g} MS, FIRST SAMPLE AT {survey.delay_ms} MS",
        f"SAMPLES ARE {sample_format.upper()} FLOATS",
        f"BIN {basin.inline_bin:g} X {basin.crossline_bin:g} M, INLINE AZIMUTH {basin.azimuth:g} DEGREES",
    ]
    lines = dict(enumerate(written, start=1))
    lines |= {39: "SEG Y REV1", 40: "END TEXTUAL HEADER"}
    text = "".join(f"C{number:2d} {lines.get(number, '')[:76]:76s}" for number in range(1, 41))
    return text.encode("cp037")


def _microseconds(survey: SyntheticSurvey) -> int:
    return round(survey.sample_interval_ms * 1000)


def _to_ibm(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """IBM System/360 single precision: sign, base-16 exponent biased by 64, 24-bit fraction. Rounds to nearest."""
    fraction, exponent = np.frexp(np.abs(values).astype(np.float64))  # 0.5 <= fraction < 1
    hexadecimal = -(-exponent // 4)
    mantissa = np.rint(np.ldexp(fraction, exponent - 4 * hexadecimal + 24)).astype(np.int64)
    carried = mantissa >> 24 != 0  # rounded up to 1.0
    mantissa, hexadecimal = np.where(carried, mantissa >> 4, mantissa), hexadecimal + carried
    words = (hexadecimal + 64 << 24) | mantissa | np.where(np.signbit(values), 1 << 31, 0)
    return np.where(mantissa == 0, 0, words).astype(np.uint32)
