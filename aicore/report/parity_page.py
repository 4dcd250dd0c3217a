"""The parity matrix as one HTML page: styles, script and data are inside it, and nothing is fetched."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

OUTCOMES = {
    "passed": ("✓", "right, and run by the device itself"),
    "renamed": ("≡", "right, and no kernel had to run"),
    "fallback": ("↪", "right, but computed by another device"),
    "unsupported": ("–", "refused, as declared"),
    "expected failure": ("!", "wrong, as expected"),
    "failed": ("✗", "wrong"),
}
"""Sign and meaning of each outcome; a reader must not depend on colours."""


def parity_page(matrix: Mapping[str, Any], version: str) -> str:
    """The page as text.

    matrix: what `aicore.testing.parity.to_json` gives. version: of aicore.
    """
    environment = Environment(
        loader=PackageLoader("aicore.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(short=_short, ulps=_ulps, heat=_heat)
    rows = matrix["rows"]
    return environment.get_template("parity.html.j2").render(
        matrix=matrix,
        version=version,
        outcomes=OUTCOMES,
        totals=_totals(matrix),
        dtypes=list(dict.fromkeys(row["dtype"] for row in rows)),
        kinds=list(dict.fromkeys(row["kind"] for row in rows)),
        data=_embedded(rows),
    )


def _totals(matrix: Mapping[str, Any]) -> dict[str, int]:
    """Rows in which an outcome occurs, in the order of OUTCOMES."""
    seen = [{cell["outcome"] for cell in row["cells"].values()} for row in matrix["rows"]]
    counts = {outcome: sum(outcome in one for one in seen) for outcome in OUTCOMES}
    return {outcome: count for outcome, count in counts.items() if count}


def _embedded(rows: Any) -> str:
    """JSON that may stand in a script element: no text of it can close the element, and every number is one of JSON."""
    text = json.dumps(_plain(rows), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(data: Any) -> Any:
    match data:
        case dict():
            return {key: _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case float() if not math.isfinite(data):
            return str(data)
        case float():
            return float(f"{data:.4g}")
    return data


def _short(number: float | None) -> str:
    """An error in few characters; 0 is exact."""
    if number is None:
        return ""
    return "0" if number == 0 else f"{number:.1e}".replace("e-0", "e-").replace("e+0", "e")


def _ulps(number: float) -> str:
    """Units in the last place: fractions where they matter."""
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}" if number < 1e6 else f"{number:.0e}"


def _heat(share: float | None) -> int:
    """How near an error is to its limit, from 0 (exact) to 4 (beyond)."""
    if not share:
        return 0
    return 1 if share < 0.1 else 2 if share < 0.5 else 3 if share <= 1 else 4
