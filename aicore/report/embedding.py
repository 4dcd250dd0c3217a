"""Data and files inside a page."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment() -> Environment:
    """Of this package's templates; what is filled in is escaped."""
    return Environment(
        loader=PackageLoader("aicore.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def finite(data: Any) -> Any:
    """The same data; numbers that JSON lacks become the texts nan, inf and -inf."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def embedded(data: Any) -> str:
    """JSON that may stand in a script element: no text of it can close the element, and every number is one of JSON."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def library(name: str) -> str:
    """The text of a library that is shipped in `vendor`, such as `d3.min.js`."""
    return files("aicore.report").joinpath("vendor", name).read_text(encoding="utf-8")
