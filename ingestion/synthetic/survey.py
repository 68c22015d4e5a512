"""A survey from a basin and a seed: layers, folds, faults with their labels, wavelet, attenuation, noise, edges.

The order of steps follows X. Wu, Z. Geng, Y. Shi, N. Pham, S. Fomel and G. Caumon (2020), *Building realistic structure
models to train convolutional neural networks for seismic structural interpretation*, Geophysics 85(4), WA27-WA39
(also X. Wu et al. 2019, *FaultSeg3D*, Geophysics 84(3), IM35-IM45): a layered model is folded by sums of Gaussians
that may grow with depth, sheared, cut by faults that displace it, and convolved after faulting. Here the
deformation is undone per voxel to find each voxel's place in the undeformed layers, so that layers and fault
labels move together. Two departures: the hanging wall deforms by vertical shear, the usual construction for
listric faults (Gibbs 1983, *Balanced cross-section construction*, J. Struct. Geol. 5), and layer impedances
have Laplace-distributed innovations (Walden and Hosken 1986, *The nature of the non-Gaussianity of primary
reflection coefficients*, Geophysical Prospecting 34).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from ingestion.synthetic.basins import Basin
from ingestion.synthetic.wavelets import attenuating_operator, half_length, noise_operator

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Triple = tuple[int, int, int]

_BLOCKS = 8  # seeds fill a square of neighbouring blocks, this many on a side
_TABLE_STEP = 1.0  # metres between entries of the impedance log
_FACIES = 3  # logs that are mixed laterally


@dataclass(frozen=True)
class SyntheticSurvey:
    """A generated post-stack survey. Axes: I inline, X crossline, Z sample (two-way time, downwards)."""

    basin: Basin
    seed: int
    amplitude_IXZ: Float32  # zero where not live; 21 significant bits, so IBM floats hold it exactly
    fault_IXZ: Bool  # voxels on a fault whose throw is at least half a sample
    recorded_IX: Bool  # traces that the file holds
    live_IX: Bool  # recorded and not dead
    inlines: npt.NDArray[np.int32]  # (I,)
    crosslines: npt.NDArray[np.int32]  # (X,)
    x_IX: Float64  # easting, metres
    y_IX: Float64  # northing, metres
    sample_interval_ms: float
    delay_ms: int


@dataclass(frozen=True)
class _Grid:
    """Local metric coordinates of a block, the vertical ones padded for the wavelet."""

    along_IX: Float32  # metres in the direction of increasing inline number
    across_IX: Float32
    depth_Z: Float32  # metres below the top of the window; negative in the upper padding
    step: float  # metres between samples
    bin: float  # larger of the two bin sizes
    height: float  # metres of the window without its padding


def make_survey(
    basin: Basin, seed: int, shape: Triple = (128, 128, 128), *, origin: tuple[float, float] | None = None
) -> SyntheticSurvey:
    """Generate one block of ``basin``: ``shape`` is (inlines, crosslines, samples).

    The same arguments give the same survey. Seeds 0 to 63 of one basin are neighbouring blocks, seed 64 lies where 0
    does (unless ``origin``, the easting and northing of the first bin, says otherwise); basins lie far apart. Raises
    ``ValueError`` for a negative seed or an axis shorter than 8.
    """
    if seed < 0 or min(shape) < 8:
        raise ValueError(f"seed {seed}, shape {shape}: expected a seed of at least 0 and at least 8 on each axis")
    faults, folds, rock, noise, edges = np.random.default_rng([zlib.crc32(basin.name.encode()), seed]).spawn(5)
    grid = _grid(basin, shape)
    strata_IXZ, fault_IXZ = _undo_faults(basin, grid, faults)
    strata_IXZ = _undo_folds(basin, grid, strata_IXZ, folds)
    signal_IXZ = _response(basin, grid, strata_IXZ, shape[2], rock)
    noisy_IXZ = signal_IXZ + _noise(basin, signal_IXZ, noise)

    recorded_IX = _outline(shape[:2], edges)
    live_IX = recorded_IX & (edges.random(shape[:2]) >= basin.dead_share)
    noisy_IXZ[~live_IX] = 0
    noisy_IXZ *= basin.amplitude / np.sqrt(np.mean(np.square(noisy_IXZ[live_IX])))
    pad = half_length(basin)
    x_IX, y_IX = _coordinates(basin, shape, origin or _block_corner(basin, seed, shape))
    return SyntheticSurvey(
        basin=basin,
        seed=seed,
        amplitude_IXZ=_to_21_bits(noisy_IXZ),
        fault_IXZ=fault_IXZ[:, :, pad : pad + shape[2]] & recorded_IX[:, :, None],
        recorded_IX=recorded_IX,
        live_IX=live_IX,
        inlines=basin.first_inline + np.arange(shape[0], dtype=np.int32),
        crosslines=basin.first_crossline + np.arange(shape[1], dtype=np.int32),
        x_IX=x_IX,
        y_IX=y_IX,
        sample_interval_ms=basin.sample_interval_ms,
        delay_ms=basin.delay_ms,
    )


def _grid(basin: Basin, shape: Triple) -> _Grid:
    pad = half_length(basin)
    step = basin.velocity * basin.sample_interval_ms / 2000  # two-way time
    along, across = np.meshgrid(
        np.arange(shape[0], dtype=np.float32) * np.float32(basin.inline_bin),
        np.arange(shape[1], dtype=np.float32) * np.float32(basin.crossline_bin),
        indexing="ij",
    )
    depth = (np.arange(-pad, shape[2] + pad, dtype=np.float32) * np.float32(step)).astype(np.float32)
    return _Grid(along, across, depth, step, max(basin.inline_bin, basin.crossline_bin), step * shape[2])


def _undo_faults(basin: Basin, grid: _Grid, random: np.random.Generator) -> tuple[Float32, Bool]:
    """Depth before faulting of each voxel, and the voxels on a fault; the youngest fault is undone first."""
    depth_IXZ = np.broadcast_to(grid.depth_Z, (*grid.along_IX.shape, len(grid.depth_Z))).copy()
    label_IXZ = np.zeros(depth_IXZ.shape, dtype=bool)
    length, width = float(grid.along_IX[-1, -1]), float(grid.across_IX[-1, -1])
    for _ in range(max(1, random.poisson(basin.faults * length * width / 1e7))):
        strike = np.deg2rad(random.uniform(*basin.fault_strike))
        dip = np.deg2rad(random.uniform(*basin.fault_dip))
        facing = random.choice((-1.0, 1.0))
        throw = random.uniform(*basin.fault_throw)
        reach = abs(throw) * random.uniform(25, 60)  # half-length; lengths are tens of times the throw
        centre_along, centre_across = random.uniform(0, length), random.uniform(0, width)
        bend = basin.fault_listric * random.uniform(0.5, 1.0) / grid.height

        north, east = grid.along_IX - centre_along, grid.across_IX - centre_across
        strike_IX = (north * np.cos(strike) + east * np.sin(strike)).astype(np.float32)
        down_IX = (facing * (east * np.cos(strike) - north * np.sin(strike))).astype(np.float32)
        # elliptical slip along strike; reverse drag fades into the hanging wall
        drag_IX = np.clip(1 - down_IX / (2 * reach), 0, 1) ** 2
        throw_IX = (throw * np.maximum(0, 1 - (strike_IX / reach) ** 2) * drag_IX).astype(np.float32)
        pivot = grid.height * random.uniform(0.2, 0.8)
        box = _box(throw_IX != 0)
        below = depth_IXZ[box] - np.float32(pivot)
        slope = np.float32(1 / np.tan(dip))
        distance_IXZ = down_IX[box][..., None] - slope * below * (1 + np.float32(bend) * np.maximum(below, 0))
        half_bin = 0.5 * max(grid.bin * (abs(np.cos(strike)) + abs(np.sin(strike))), grid.step * float(slope) * 2)
        moved_IX = throw_IX[box][..., None]
        label_IXZ[box] |= (abs(distance_IXZ) <= half_bin) & (abs(moved_IX) >= grid.step / 2)
        depth_IXZ[box] -= np.where(distance_IXZ > 0, moved_IX, np.float32(0))
    return depth_IXZ, label_IXZ


def _box(where_IX: Bool) -> tuple[slice, slice]:
    """The smallest rectangle around all bins of ``where_IX``; empty when there are none."""
    i, x = (np.flatnonzero(where_IX.any(axis=axis)) for axis in (1, 0))
    return (slice(i[0], i[-1] + 1), slice(x[0], x[-1] + 1)) if len(i) else (slice(0, 0), slice(0, 0))


def _undo_folds(basin: Basin, grid: _Grid, depth_IXZ: Float32, random: np.random.Generator) -> Float32:
    """Depth in the undeformed layers, from the depth before faulting."""
    fold_IX = np.zeros_like(grid.along_IX)
    length, width = float(grid.along_IX[-1, -1]), float(grid.across_IX[-1, -1])
    margin = basin.fold_length
    area = (length + 2 * margin) * (width + 2 * margin)
    for _ in range(max(3, round(area / (4 * margin**2)))):
        along = random.uniform(-margin, length + margin)
        across = random.uniform(-margin, width + margin)
        radius = margin * random.uniform(0.6, 1.4)
        height = basin.fold_height * random.uniform(-1, 1)
        squared = (grid.along_IX - along) ** 2 + (grid.across_IX - across) ** 2
        fold_IX += (height * np.exp(-squared / (2 * radius**2))).astype(np.float32)
    growth_Z = 1 - basin.fold_growth + basin.fold_growth * np.clip(depth_IXZ / grid.height, 0, 1.5)
    toward, slope = random.uniform(0, 2 * np.pi), np.tan(np.deg2rad(basin.dip * random.uniform(0.3, 1.0)))
    plane_IX = slope * (grid.along_IX * np.cos(toward) + grid.across_IX * np.sin(toward))
    return np.asarray(depth_IXZ + fold_IX[:, :, None] * growth_Z - plane_IX[:, :, None], dtype=np.float32)


def _response(basin: Basin, grid: _Grid, strata_IXZ: Float32, samples: int, random: np.random.Generator) -> Float32:
    """Noise-free traces: reflectivity of the deformed layers through the attenuating wavelet."""
    top = float(strata_IXZ.min())
    entries = int((float(strata_IXZ.max()) - top) / _TABLE_STEP) + 3
    position_IXZ = (strata_IXZ - np.float32(top)) * np.float32(1 / _TABLE_STEP)
    entry_IXZ = position_IXZ.astype(np.int32)
    position_IXZ -= entry_IXZ
    impedance_IXZ = np.zeros_like(strata_IXZ)
    for facies in range(_FACIES):
        share = 1 - basin.facies_spread if facies == 0 else basin.facies_spread
        log = share * _impedance_log(basin, entries, grid.step, random)
        weight_IX = np.ones_like(grid.along_IX) if facies == 0 else _smooth_field(basin, grid, random)
        steps = np.diff(log, append=log[-1]).astype(np.float32)
        values = log.astype(np.float32)
        impedance_IXZ += weight_IX[:, :, None] * (values[entry_IXZ] + steps[entry_IXZ] * position_IXZ)
    reflectivity_IXZ = np.empty_like(impedance_IXZ)
    reflectivity_IXZ[..., 0] = 0
    np.subtract(impedance_IXZ[..., 1:], impedance_IXZ[..., :-1], out=reflectivity_IXZ[..., 1:])
    reflectivity_IXZ *= 0.5
    return np.asarray(reflectivity_IXZ @ attenuating_operator(basin, samples).T, dtype=np.float32)


def _impedance_log(basin: Basin, entries: int, sample: float, random: np.random.Generator) -> Float64:
    """Log impedance every ``_TABLE_STEP`` metres: blocky layers, smoothed to what one sample resolves."""
    layers = int(4 * entries * _TABLE_STEP / basin.layer_thickness) + 16
    drift = basin.layer_spread**2 / 2
    thickness = basin.layer_thickness * random.lognormal(-drift, basin.layer_spread, layers)
    innovation = random.laplace(0, basin.impedance_spread / np.sqrt(2), layers)
    value = np.empty(layers)
    value[0] = innovation[0]
    for layer in range(1, layers):
        value[layer] = basin.layer_correlation * value[layer - 1] + innovation[layer]
    layer_of_entry = np.searchsorted(np.cumsum(thickness), np.arange(entries) * _TABLE_STEP)
    blocky = value[np.minimum(layer_of_entry, layers - 1)]
    return np.asarray(ndimage.gaussian_filter1d(blocky, 0.5 * sample / _TABLE_STEP, mode="nearest"))


def _smooth_field(basin: Basin, grid: _Grid, random: np.random.Generator) -> Float32:
    """A lateral random field of mean 0 and deviation 1 that varies over ``facies_length``."""
    sigma = (basin.facies_length / 2 / basin.inline_bin, basin.facies_length / 2 / basin.crossline_bin)
    coarse = ndimage.gaussian_filter(random.standard_normal(grid.along_IX.shape), sigma, mode="wrap", truncate=2.5)
    return np.asarray((coarse - coarse.mean()) / coarse.std(), dtype=np.float32)


def _noise(basin: Basin, signal_IXZ: Float32, random: np.random.Generator) -> Float32:
    """Band-limited, laterally correlated noise at the basin's ratio to the signal."""
    white = random.standard_normal(signal_IXZ.shape, dtype=np.float32)
    for axis in (0, 1):
        white = ndimage.gaussian_filter1d(white, basin.noise_length / 2, axis=axis, truncate=2.5)
    noise = white @ noise_operator(basin, signal_IXZ.shape[2]).T
    scale = basin.noise * np.sqrt(np.mean(np.square(signal_IXZ)) / np.mean(np.square(noise)))
    return np.asarray(noise * np.float32(scale), dtype=np.float32)


def _outline(shape: tuple[int, int], random: np.random.Generator) -> Bool:
    """Recorded bins: a rectangle with wandering edges and one cut corner, as permits and platforms leave it."""
    recorded = np.ones(shape, dtype=bool)
    for axis in (0, 1):
        along = np.arange(shape[1 - axis]) / shape[1 - axis]
        across = np.arange(shape[axis])
        for side in (across, across[::-1]):
            phases = random.uniform(0, 2 * np.pi, 3)
            wander = sum(np.sin(2 * np.pi * k * along + p) / k for k, p in enumerate(phases, start=1))
            edge = shape[axis] * 0.02 * (1.6 + np.asarray(wander))
            inside = side[:, None] >= edge[None, :]
            recorded &= inside if axis == 0 else inside.T
    corner, size = random.integers(4), random.uniform(0.12, 0.22)
    i, x = (np.arange(n) / n for n in shape)
    i, x = (i[::-1] if corner & 1 else i), (x[::-1] if corner & 2 else x)
    return np.asarray(recorded & (i[:, None] + x[None, :] > size))


def _block_corner(basin: Basin, seed: int, shape: Triple) -> tuple[float, float]:
    """First bin of the seed's block; blocks of one shape do not overlap, save those of seeds 64 apart."""
    row, column = divmod(seed % _BLOCKS**2, _BLOCKS)
    along, across = column * (shape[0] + 16) * basin.inline_bin, row * (shape[1] + 16) * basin.crossline_bin
    sine, cosine = np.sin(np.deg2rad(basin.azimuth)), np.cos(np.deg2rad(basin.azimuth))
    return basin.corner[0] + along * sine + across * cosine, basin.corner[1] + along * cosine - across * sine


def _coordinates(basin: Basin, shape: Triple, origin: tuple[float, float]) -> tuple[Float64, Float64]:
    """Easting and northing of all bins, in whole centimetres as SEG-Y stores them."""
    along, across = np.arange(shape[0]) * basin.inline_bin, np.arange(shape[1]) * basin.crossline_bin
    sine, cosine = np.sin(np.deg2rad(basin.azimuth)), np.cos(np.deg2rad(basin.azimuth))
    x = origin[0] + along[:, None] * sine + across[None, :] * cosine
    y = origin[1] + along[:, None] * cosine - across[None, :] * sine
    return np.round(x, 2), np.round(y, 2)


def _to_21_bits(values: Float32) -> Float32:
    """Nearest values with 21 significant bits: what an IBM float always holds."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(4)) & np.uint32(0xFFFFFFF8)).view(np.float32)
