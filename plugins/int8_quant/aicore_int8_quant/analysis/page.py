"""The diagnosis as one HTML page: styles, script and data are inside it, and nothing is fetched."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from aicore_int8_quant.analysis.analyze import Analysis

_BEST = 80.0
"""Decibels of a full bar; an SQNR above it is no worse than rounding to float16."""


def analysis_page(analysis: Analysis) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("aicore_int8_quant.analysis"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(decibels=decibels, bar=_bar, histogram=_histogram, number=_number)
    data = analysis.to_json()
    counts = {
        kind: sum(row["kind"] == kind for row in data["coverage"]["nodes"]) for kind in ("int8", "border", "float")
    }
    reasons: dict[str, list[str]] = {}
    for row in data["coverage"]["nodes"]:
        if row["kind"] == "float":
            reasons.setdefault(row["reason"], []).append(row["name"])
    return environment.get_template("analysis.html.j2").render(
        analysis=analysis, counts=counts, reasons=sorted(reasons.items(), key=lambda item: -len(item[1])),
        curve=_curve(analysis), data=_embedded(data),
    )  # fmt: skip


def decibels(value: float) -> str:
    """A number for people: one digit behind the point, and signs for what has none."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.1f}"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _bar(value: float) -> float:
    """Width of a bar in percent."""
    return 0.0 if math.isnan(value) else max(0.0, min(100.0, 100 * value / _BEST))


def _histogram(found: dict[str, Any]) -> dict[str, Any]:
    """A picture of 256 by 48: the bars of log counts as an SVG path, and where the codes end."""
    counts, low, high = found["counts"], found["low"], found["high"]
    low, high = min(low, found["clip"][0]), max(high, found["clip"][1])
    span = (high - low) or 1.0
    tallest = math.log1p(max(counts, default=0)) or 1.0
    step = (found["high"] - found["low"]) / max(len(counts), 1) / span * 256
    start = (found["low"] - low) / span * 256
    parts = []
    for i, count in enumerate(counts):
        height = 48 * math.log1p(count) / tallest
        parts.append(f"M{start + i * step:.1f} 48v-{height:.1f}h{step:.1f}v{height:.1f}")
    clips = [round((end - low) / span * 256, 1) for end in found["clip"]]
    return {"path": "".join(parts), "clips": clips, "zero": round((0 - low) / span * 256, 1)}


def _curve(analysis: Analysis) -> dict[str, Any]:
    """A picture of 480 by 140 of the metric against layers kept in floating point; the axis is their square root."""
    points = analysis.kept
    most = max((point["count"] for point in points), default=0) or 1
    values = [point["metric"] for point in points]
    low, high = min(values, default=0.0), max(values, default=1.0)
    span = (high - low) or 1.0
    places = [
        {
            **point,
            "x": round(56 + 408 * math.sqrt(point["count"] / most), 1),
            "y": round(120 - 100 * (point["metric"] - low) / span, 1) if high > low else 70.0,
        }
        for point in points
    ]
    return {"points": places, "line": " ".join(f"{p['x']},{p['y']}" for p in places), "low": low, "high": high}


def _embedded(data: Any) -> str:
    """JSON that may stand in a script element: no text of it can close the element, and every number is one of JSON."""
    text = json.dumps(plain(data), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(data: Any) -> Any:
    """The data with texts for what JSON has no number for."""
    match data:
        case dict():
            return {str(key): plain(value) for key, value in data.items()}
        case list() | tuple():
            return [plain(value) for value in data]
        case float() if not math.isfinite(data):
            return str(data)
    return data
