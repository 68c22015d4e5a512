"""What several commands take in the same way."""

from __future__ import annotations

import math
from typing import Any

import click

from seismic_model.config import Triple

_DIGITS = 6  # of an edge


class Voxels(click.ParamType[Triple]):
    """A window as people write it, such as 1536x1536x2048: inline x crossline x sample."""

    name = "IxXxZ"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """As it is; click would write it in capitals."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Triple:
        """Three positive numbers."""
        parts = str(value).lower().split("x")
        if len(parts) != 3 or not all(part.isdecimal() and len(part) <= _DIGITS and int(part) > 0 for part in parts):
            self.fail(f"{str(value)[:60]!r} is not of the form 1536x1536x2048", param, ctx)
        i, x, z = map(int, parts)
        return i, x, z


class Between(click.FloatRange):
    """A range of finite numbers: "nan" compares with nothing, so no range keeps it out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
