"""Everything one training run is told, in one model: resolved and frozen on the lake before launch."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ingestion.manifest import Contract, Digest, SafeName

Triple = tuple[int, int, int]  # (inline, crossline, sample)
Share = Annotated[float, Field(ge=0, lt=1)]
StrategyName = Literal["ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp"]
Checkpointing = Literal["none", "selective", "full"]
"""What backward computes again: nothing, all but attention, or whole blocks."""


class ReferenceSpacing(Contract):
    """The voxel that rotary positions count in, so that bins of 12.5 m and of 25 m mean what they are."""

    inline_m: float = Field(gt=0)  # between neighbouring inlines
    crossline_m: float = Field(gt=0)
    time_ms: float = Field(gt=0)  # of surveys in time
    depth_m: float = Field(gt=0)  # of surveys in depth


class ModelConfig(Contract):
    """Shape of the masked autoencoder. ``MODEL_SIZES`` names the ones in use."""

    patch: Triple = (16, 16, 16)  # voxels
    width: int = Field(gt=0)
    depth: int = Field(gt=0)
    heads: int = Field(gt=0)
    decoder_width: int = Field(gt=0)
    decoder_depth: int = Field(gt=0)
    decoder_heads: int = Field(gt=0)
    decoder: Literal["self", "cross"] = "cross"  # decoded tokens attend to all of both, or to visible ones only
    registers: int = Field(default=0, ge=0)  # learned tokens beside the visible ones (Darcet et al. 2024)
    reference_spacing: ReferenceSpacing | None = None  # None: positions count patches, whatever their size
    patch_normalisation: bool = False  # targets per patch; mean and log deviation are then predicted too

    @model_validator(mode="after")
    def _heads_hold_rotary_pairs(self) -> ModelConfig:
        for part, width, heads in (
            ("encoder", self.width, self.heads),
            ("decoder", self.decoder_width, self.decoder_heads),
        ):
            if width % heads or (width // heads) % 2 or width // heads < 6:
                raise ValueError(
                    f"{part} width {width} over {heads} heads gives {width / heads:g} a head; "
                    "expected an even number of at least 6 (a rotary pair for each of three axes)"
                )
        if min(self.patch) < 1:
            raise ValueError(f"patch {self.patch} has an edge below 1 voxel")
        return self

    @property
    def patch_voxels(self) -> int:
        """P, voxels in a patch."""
        return math.prod(self.patch)


_REFERENCE = ReferenceSpacing(inline_m=25, crossline_m=25, time_ms=4, depth_m=10)


def _size(
    width: int,
    depth: int,
    heads: int,
    decoder: Triple,
    patch: Triple = (16, 16, 16),
    reference: ReferenceSpacing | None = _REFERENCE,
) -> ModelConfig:
    return ModelConfig(
        reference_spacing=reference,
        patch=patch,
        width=width,
        depth=depth,
        heads=heads,
        decoder_width=decoder[0],
        decoder_depth=decoder[1],
        decoder_heads=decoder[2],
    )


MODEL_SIZES: dict[str, ModelConfig] = {
    "tiny": _size(96, 4, 4, (96, 2, 4), (4, 4, 2), None),  # the demo, on CPU
    "small": _size(384, 12, 6, (256, 4, 8)),
    "base": _size(768, 12, 12, (512, 8, 16)),
    "large": _size(1024, 24, 16, (512, 8, 16)),
    "huge": _size(1280, 32, 16, (512, 8, 16)),
    "1.8b": _size(1664, 52, 16, (512, 8, 16)),
}


DECODE_SHARE = 0.5  # for cross decoders; those that attend to each other lose by it (docs/adr/0010)


class Init(Contract):
    """Where the weights come from: nothing, or another run's committed checkpoint."""

    origin: Literal["scratch", "weights"] = "scratch"
    run: SafeName | None = None  # on the same lake
    step: int | None = None
    weights_sha256: Digest | None = None

    @model_validator(mode="after")
    def _weights_are_named(self) -> Init:
        if (self.origin == "weights") != (None not in (self.run, self.step, self.weights_sha256)):
            raise ValueError("init 'weights' needs run, step and weights_sha256; init 'scratch' takes none of them")
        return self


class RunConfig(Contract):
    """One training run."""

    schema_version: Literal[1] = 1
    lake: str  # URI
    run: SafeName
    dataset: str  # key of datasets/<week>.json on the lake
    dataset_sha256: Digest
    model: ModelConfig
    window: Triple  # voxels of one crop; divided by the patch
    keep_ratio: float = Field(default=0.25, gt=0, lt=1)  # share of tokens the encoder sees
    decode_share: float = Field(default=DECODE_SHARE, gt=0, le=1)  # share of hidden tokens that are decoded and scored
    seed: int = Field(default=0, ge=0, lt=2**64)  # half of a Philox key
    steps: int = Field(gt=0, le=10**9)
    batch: int = Field(gt=0, le=10**6)  # crops in one optimiser step, over all data-parallel ranks and micro-batches
    accumulation: int = Field(default=1, gt=0)  # micro-batches in one optimiser step
    learning_rate: float = Field(default=1e-3, gt=0)
    warmup_steps: int = Field(default=20, ge=0, le=10**9)
    final_learning_rate: float = Field(default=1e-5, ge=0)  # cosine from learning_rate down to this
    weight_decay: float = Field(default=0.05, ge=0)
    betas: tuple[Share, Share] = (0.9, 0.95)
    gradient_clip: float = Field(default=1.0, gt=0)  # global L2 norm
    strategy: StrategyName = "zero2"
    precision: Literal["float64", "float32", "bfloat16"] = "float32"
    cp: int = Field(default=1, gt=0)  # ranks that share one crop, ring x ulysses
    ulysses: int = Field(default=1, gt=0)  # of these, how many share heads; the rest are a ring
    activation_checkpointing: Checkpointing = "none"
    compile: bool = False  # blocks by torch.compile, which takes a minute of each process at the first start
    ema_decay: float | None = Field(default=None, gt=0, lt=1)  # of a step; averages weights beside the trained ones
    init: Init = Init()
    checkpoint_every: int = Field(default=100, gt=0)  # steps
    checkpoints_kept: int = Field(default=3, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> RunConfig:
        check_window(self.model, self.window, self.keep_ratio)
        if self.precision == "float64" and self.strategy.startswith("zero"):
            raise ValueError("float64 needs strategy 'ddp', 'fsdp2' or 'hsdp': DeepSpeed keeps float32 master weights")
        if self.compile and self.strategy == "zero3":
            raise ValueError("compile needs another strategy than 'zero3', which gathers weights inside the blocks")
        if self.cp % self.ulysses or any(h % self.ulysses for h in (self.model.heads, self.model.decoder_heads)):
            raise ValueError(
                f"ulysses {self.ulysses} has to divide cp {self.cp} and the heads of encoder ({self.model.heads}) and "
                f"decoder ({self.model.decoder_heads})"
            )
        return self

    @property
    def key(self) -> str:
        """Where the config lies on the lake."""
        return f"{run_folder(self.run)}/config.json"


def check_window(model: ModelConfig, window: Triple, keep_ratio: float) -> None:
    """Raises ``ValueError`` for crops that ``model`` cannot be trained on."""
    if any(w < 1 or w % p for w, p in zip(window, model.patch, strict=True)):
        raise ValueError(f"window {window} is not a positive multiple of patch {model.patch}")
    tokens = math.prod(window) // model.patch_voxels
    if tokens < 2 or round(keep_ratio * tokens) == tokens:
        raise ValueError(f"keep_ratio {keep_ratio} of {tokens} tokens hides none; there is nothing to learn")


def run_folder(run: str) -> str:
    """``runs/<run>``."""
    return f"runs/{run}"
