"""The empty MDIO v1 store of a survey: multidimio's own template, with the axes and coordinates it would get wrong.

multidimio 1.1 types the vertical axis as int32 (0.5 ms becomes 0, 0, 1, 1), ignores the recording delay and applies
the first trace's coordinate scalar to all. Structure, codecs, names and attributes are its own, so that
``mdio.open_mdio`` and ``mdio.mdio_to_segy`` work on the result.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, BloscShuffle
from zarr.storage import MemoryStore, StorePath

from ingestion.lake import Lake
from ingestion.preflight.inspection import Survey
from ingestion.segy.samples import FORMAT_CODES
from ingestion.source import Source

if TYPE_CHECKING:
    import xarray

AMPLITUDE = "amplitude"
COMPRESSION = numcodecs.Blosc("zstd", 4, numcodecs.Blosc.BITSHUFFLE)  # of amplitudes; docs/adr says why
CELL_ARRAYS_OF_MDIO = {"cdp_x", "cdp_y", "trace_mask"}
# beside these, what only `survey export` needs; `trace_number` counts from 1 through all files, 0 is none
CELL_ARRAYS_OF_OURS = {"trace_number": 1024, "trace_header_233_240": 128}  # edge of a chunk, as it is written
CELL_ARRAYS = CELL_ARRAYS_OF_MDIO | CELL_ARRAYS_OF_OURS.keys()
BEFORE_TRACES, AFTER_TRACES = "segy_files/{}/before_traces", "segy_files/{}/after_traces"  # bytes of each file
_MOST_KEPT_BYTES = 32 * 1024 * 1024
_CELL_CHUNK = 1024  # edge
_COORDINATE_UNITS = {1: "m", 2: "ft"}  # measurement system of the binary header


def create_store(survey: Survey, lake: Lake, folder: str, name: str) -> None:
    """Write metadata and axes of ``survey`` below ``folder``; all other arrays stay all fill.

    Built in memory and put object by object, so that nothing is deleted first and the same files give the same bytes.
    """
    from mdio.core.zarr_io import (
        zarr_warnings_suppress_unstable_numcodecs_v3,
        zarr_warnings_suppress_unstable_structs_v3,
    )

    objects: dict[str, Any] = {}
    store = MemoryStore(objects)
    dataset = _dataset(survey, name)
    with zarr_warnings_suppress_unstable_structs_v3(), zarr_warnings_suppress_unstable_numcodecs_v3():
        dataset.to_zarr(store, mode="w", compute=False, consolidated=False, write_empty_chunks=False)
        dataset[list(dataset.dims)].to_zarr(store, mode="r+", consolidated=False, write_empty_chunks=False)
        grid = survey.grid.shape
        for array, edge in CELL_ARRAYS_OF_OURS.items():
            _add_array(store, array, grid, (min(grid[0], edge), min(grid[1], edge)), "int64")
        for file, (source, layout) in enumerate(zip(survey.sources, survey.layouts, strict=True)):
            _keep_bytes(store, BEFORE_TRACES.format(file), source, 0, layout.data_start)
            _keep_bytes(store, AFTER_TRACES.format(file), source, layout.data_stop, source.size)
    for key, value in objects.items():
        lake.write(f"{folder}/{key}", value.to_bytes())


def stored_array(lake: Lake, folder: str, name: str, mode: Literal["r", "r+"] = "r") -> zarr.Array[Any]:
    """One array of the store below ``folder``."""
    with zarr.config.set({"array.write_empty_chunks": False}):
        return zarr.open_array(
            StorePath(lake.zarr_store(folder, read_only=mode == "r"), name), mode=mode, zarr_format=3
        )


def cell_chunks(shape: tuple[int, int]) -> tuple[int, int]:
    """Chunks of an array with one value a cell."""
    return min(shape[0], _CELL_CHUNK), min(shape[1], _CELL_CHUNK)


def _add_array(
    store: MemoryStore, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str
) -> zarr.Array[Any]:
    return zarr.create_array(
        store,
        name=name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=0,
        compressors=BloscCodec(cname="zstd", clevel=5, shuffle="shuffle"),
        dimension_names=("inline", "crossline") if len(shape) > 1 else None,
    )


def _keep_bytes(store: MemoryStore, name: str, source: Source, start: int, stop: int) -> None:
    """What lies around the traces of a file; nothing of what would be too much to keep."""
    length = stop - start if stop - start <= _MOST_KEPT_BYTES else 0
    kept = np.frombuffer(source.read(start, length), np.uint8)
    _add_array(store, name, kept.shape, (max(1, length),), "uint8")[...] = kept


@lru_cache
def header_fields(order: str) -> tuple[np.dtype[np.void], np.dtype[np.void]]:
    """The trace header of SEG-Y rev 1 as it lies in a file of byte ``order``, and as MDIO stores it (native, packed).

    Bytes 233-240, which the standard leaves unassigned, are kept beside it: ``mdio_to_segy`` could not write them.
    """
    from segy.standards import get_segy_standard

    declared = get_segy_standard(1.0).trace.header.dtype
    names = list(declared.names)
    kinds = [declared.fields[name][0].str[1:] for name in names]
    offsets = [declared.fields[name][1] for name in names]
    filed = np.dtype(
        {"names": names, "formats": [order + k for k in kinds], "offsets": offsets, "itemsize": declared.itemsize}
    )
    return filed, np.dtype(list(zip(names, kinds, strict=True)))


def _dataset(survey: Survey, name: str) -> xarray.Dataset:
    from mdio.builder.schemas.compressors import Blosc
    from mdio.builder.schemas.dtype import ScalarType
    from mdio.builder.template_registry import get_template
    from mdio.builder.xarray_builder import to_xarray_dataset
    from mdio.converters.type_converter import to_structured_type

    grid, axis, domain = survey.grid, survey.axis, survey.domain
    template = get_template(f"PostStack3D{domain.capitalize()}")
    template.add_units(_units(survey, domain))
    described = template.build_dataset(name, survey.shape, to_structured_type(header_fields("=")[1]))
    for variable in described.variables:
        if variable.name == domain:
            variable.data_type = ScalarType.FLOAT64
        if variable.name == AMPLITUDE:
            variable.compressor = Blosc(clevel=COMPRESSION.clevel, shuffle=BloscShuffle.bitshuffle)
    described.metadata.created_on = datetime.fromtimestamp(0, UTC)  # the manifest says when; equal input, equal bytes
    dataset: xarray.Dataset = to_xarray_dataset(described)
    for array in CELL_ARRAYS_OF_MDIO:
        dataset[array].encoding["chunks"] = cell_chunks(grid.shape)
    axes = {"inline": grid.inline.values(), "crossline": grid.crossline.values()}
    lines = {name: values.astype(np.int32) for name, values in axes.items()}
    return _with_file_headers(_with_values(dataset, {**lines, domain: axis.values()}), survey)


def _with_values(dataset: xarray.Dataset, values: dict[str, npt.NDArray[Any]]) -> xarray.Dataset:
    """``dataset`` with these coordinates, their attributes and encodings kept."""
    before = {name: dataset[name] for name in values}
    filled = dataset.assign_coords(
        {name: (before[name].dims, data, before[name].attrs) for name, data in values.items()}
    )
    for name, variable in before.items():
        filled[name].encoding = variable.encoding
    return filled


def _units(survey: Survey, domain: str) -> dict[str, Any]:
    from mdio.builder.schemas.v1.units import LengthUnitModel, TimeUnitModel

    vertical = TimeUnitModel(time="ms") if domain == "time" else LengthUnitModel(length=survey.axis.unit)
    units = {domain: vertical}
    length = survey.spec.coordinate_unit or _COORDINATE_UNITS.get(survey.layouts[0].measurement_system)
    if length is not None:
        units |= {name: LengthUnitModel(length=length) for name in ("cdp_x", "cdp_y")}
    return units


def _with_file_headers(dataset: xarray.Dataset, survey: Survey) -> xarray.Dataset:
    """Text and binary header where ``mdio_to_segy`` looks for them, and their bytes as they were."""
    from segy.standards import get_segy_standard

    layout, axis = survey.layouts[0], survey.axis
    declared = get_segy_standard(1.0).binary_header.dtype.newbyteorder(layout.order)
    row = np.frombuffer(layout.binary_header, declared)[0]
    binary = {name: int(row[name]) for name in declared.names if name != "segy_revision"}
    major, minor = layout.revision
    codes = {name: code for code, name in FORMAT_CODES.items()}
    binary |= {"segy_revision_major": major, "segy_revision_minor": minor, "num_extended_text_headers": 0}
    binary |= {"samples_per_trace": layout.samples, "data_sample_format": codes[layout.sample_format]}
    binary |= {"sample_interval": round(axis.step * 1000)}
    dataset["segy_file_header"] = ((), "")
    dataset["segy_file_header"].attrs = {
        "textHeader": layout.text.encode("ascii", "replace").decode(),
        "binaryHeader": binary,
        "rawTextHeader": base64.b64encode(layout.text_header).decode(),
        "rawBinaryHeader": base64.b64encode(layout.binary_header).decode(),
    }
    return dataset
