"""What makes one basin differ from another: rock, structure, acquisition and place.

The figures are textbook geology (interval velocities, dips, throws, dominant frequencies of conventional data)
and are fixed. They are not tuned against a trained model: a result that depends on them says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Range = tuple[float, float]


@dataclass(frozen=True)
class Basin:
    """A geological province and the way it was shot. Lengths in metres, times in milliseconds, angles in degrees."""

    name: str
    # rock
    velocity: float  # m/s, of the interval that the survey shows
    layer_thickness: float  # mean; thicknesses are log-normal
    layer_spread: float  # standard deviation of the log thickness
    impedance_spread: float  # standard deviation of log impedance between layers
    layer_correlation: float  # of one layer's impedance with the next: below 0 alternating beds, above 0 trends
    facies_spread: float  # share of the impedance that varies laterally
    facies_length: float  # over which it varies
    # structure
    dip: float  # largest regional dip
    fold_height: float  # amplitude of the folds at the base of the window
    fold_length: float  # their horizontal radius
    fold_growth: float  # 0: all depths fold alike; 1: the top is flat
    faults: float  # mean number in 10 km²
    fault_throw: Range  # vertical; negative for reverse faults
    fault_dip: Range
    fault_listric: float  # 0: planar; 1: the dip flattens strongly downwards
    fault_strike: Range  # clockwise from the inline direction
    # seismic response
    wavelet: Literal["ricker", "ormsby", "klauder"]
    frequency: float  # Hz: peak of a Ricker, centre of the band of the others
    phase: float  # rotation left in the data
    quality: float  # Q
    noise: float  # RMS of noise over RMS of signal
    noise_band: Range  # Hz
    noise_length: float  # bins over which noise is correlated laterally
    amplitude: float  # RMS of live samples, in the units of the processing
    # acquisition
    sample_interval_ms: float
    delay_ms: int
    inline_bin: float
    crossline_bin: float
    azimuth: float  # of increasing inline number, clockwise from north
    corner: tuple[float, float]  # easting and northing of the first block
    first_inline: int
    first_crossline: int
    dead_share: float  # of recorded traces


_ALL = (
    Basin(
        name="carbonate_shelf",  # hard, fine alternating beds, hardly deformed, shot with a fine grid
        velocity=4200,
        layer_thickness=14,
        layer_spread=0.5,
        impedance_spread=0.12,
        layer_correlation=-0.4,
        facies_spread=0.35,
        facies_length=900,
        dip=1.5,
        fold_height=25,
        fold_length=900,
        fold_growth=0.2,
        faults=6,
        fault_throw=(8, 30),
        fault_dip=(60, 75),
        fault_listric=0.0,
        fault_strike=(20, 60),
        wavelet="ricker",
        frequency=42,
        phase=0,
        quality=180,
        noise=0.12,
        noise_band=(10, 90),
        noise_length=0.8,
        amplitude=2500,
        sample_interval_ms=2,
        delay_ms=600,
        inline_bin=12.5,
        crossline_bin=12.5,
        azimuth=0,
        corner=(430_000, 2_760_000),
        first_inline=1000,
        first_crossline=2000,
        dead_share=0.002,
    ),
    Basin(
        name="deltaic",  # sand and shale, growth faults that flatten with depth
        velocity=2600,
        layer_thickness=18,
        layer_spread=0.7,
        impedance_spread=0.07,
        layer_correlation=0.25,
        facies_spread=0.6,
        facies_length=700,
        dip=3,
        fold_height=55,
        fold_length=800,
        fold_growth=0.7,
        faults=9,
        fault_throw=(20, 80),
        fault_dip=(45, 60),
        fault_listric=0.7,
        fault_strike=(-20, 15),
        wavelet="ricker",
        frequency=30,
        phase=0,
        quality=90,
        noise=0.22,
        noise_band=(6, 70),
        noise_length=1.2,
        amplitude=0.8,
        sample_interval_ms=4,
        delay_ms=0,
        inline_bin=25,
        crossline_bin=25,
        azimuth=32,
        corner=(310_000, 480_000),
        first_inline=201,
        first_crossline=801,
        dead_share=0.003,
    ),
    Basin(
        name="deep_water",  # thin turbidites under deep water, broadband, polygonal faults
        velocity=2050,
        layer_thickness=11,
        layer_spread=0.9,
        impedance_spread=0.05,
        layer_correlation=0.0,
        facies_spread=0.7,
        facies_length=1200,
        dip=4,
        fold_height=70,
        fold_length=1100,
        fold_growth=0.3,
        faults=14,
        fault_throw=(6, 25),
        fault_dip=(45, 70),
        fault_listric=0.2,
        fault_strike=(-90, 90),
        wavelet="ormsby",
        frequency=38,
        phase=0,
        quality=120,
        noise=0.08,
        noise_band=(4, 100),
        noise_length=0.6,
        amplitude=140,
        sample_interval_ms=3,
        delay_ms=2400,
        inline_bin=18.75,
        crossline_bin=12.5,
        azimuth=118,
        corner=(742_000, 7_390_000),
        first_inline=5200,
        first_crossline=3300,
        dead_share=0.001,
    ),
    Basin(
        name="faulted_rift",  # tilted blocks between steep planar faults of large throw
        velocity=3000,
        layer_thickness=22,
        layer_spread=0.6,
        impedance_spread=0.09,
        layer_correlation=0.1,
        facies_spread=0.4,
        facies_length=1000,
        dip=7,
        fold_height=35,
        fold_length=1000,
        fold_growth=0.4,
        faults=13,
        fault_throw=(30, 130),
        fault_dip=(55, 68),
        fault_listric=0.15,
        fault_strike=(60, 105),
        wavelet="ricker",
        frequency=26,
        phase=-25,
        quality=80,
        noise=0.28,
        noise_band=(5, 60),
        noise_length=1.5,
        amplitude=5200,
        sample_interval_ms=4,
        delay_ms=0,
        inline_bin=25,
        crossline_bin=12.5,
        azimuth=77,
        corner=(465_000, 6_780_000),
        first_inline=1,
        first_crossline=1,
        dead_share=0.004,
    ),
    Basin(
        name="salt_flank",  # steep folds against a rising body, some thrusts, strong attenuation
        velocity=3400,
        layer_thickness=24,
        layer_spread=0.6,
        impedance_spread=0.08,
        layer_correlation=0.15,
        facies_spread=0.3,
        facies_length=1100,
        dip=12,
        fold_height=190,
        fold_length=650,
        fold_growth=0.6,
        faults=6,
        fault_throw=(-70, -15),
        fault_dip=(30, 50),
        fault_listric=0.4,
        fault_strike=(-35, 35),
        wavelet="ricker",
        frequency=22,
        phase=60,
        quality=55,
        noise=0.32,
        noise_band=(4, 50),
        noise_length=1.8,
        amplitude=31_000,
        sample_interval_ms=4,
        delay_ms=400,
        inline_bin=30,
        crossline_bin=20,
        azimuth=205,
        corner=(268_000, 3_140_000),
        first_inline=640,
        first_crossline=120,
        dead_share=0.006,
    ),
    Basin(
        name="cratonic_land",  # flat thick beds, vibroseis, noisy near surface
        velocity=4600,
        layer_thickness=34,
        layer_spread=0.8,
        impedance_spread=0.11,
        layer_correlation=-0.15,
        facies_spread=0.25,
        facies_length=1500,
        dip=1,
        fold_height=30,
        fold_length=1500,
        fold_growth=0.0,
        faults=3,
        fault_throw=(10, 45),
        fault_dip=(70, 85),
        fault_listric=0.0,
        fault_strike=(100, 150),
        wavelet="klauder",
        frequency=36,
        phase=90,
        quality=140,
        noise=0.45,
        noise_band=(8, 80),
        noise_length=1.0,
        amplitude=1.6,
        sample_interval_ms=2,
        delay_ms=200,
        inline_bin=20,
        crossline_bin=20,
        azimuth=301,
        corner=(598_000, 5_720_000),
        first_inline=11,
        first_crossline=101,
        dead_share=0.008,
    ),
)

BASINS: dict[str, Basin] = {basin.name: basin for basin in _ALL}
