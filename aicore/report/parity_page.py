"""The parity matrix as one HTML page: styles, script and data are inside it, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aicore.report.embedding import embedded, environment
from aicore.report.packing import pack

OUTCOMES = {
    "passed": ("✓", "right, and run by the device itself"),
    "renamed": ("≡", "right, and no kernel had to run"),
    "fallback": ("↪", "right, but computed by another device"),
    "unsupported": ("–", "refused, as declared"),
    "skipped": ("∅", "not tried, as its author asked"),
    "expected failure": ("!", "wrong, as expected"),
    "failed": ("✗", "wrong"),
}
"""Sign and meaning of each outcome; a reader must not depend on colours."""


def parity_page(matrix: Mapping[str, Any], version: str) -> str:
    """The page as text.

    matrix: what `aicore.testing.parity.to_json` gives. version: of aicore.
    """
    rows = matrix["rows"]
    packed = pack(rows, [column["name"] for column in matrix["columns"]], list(OUTCOMES))
    return (
        environment()
        .get_template("parity.html.j2")
        .render(
            matrix=matrix,
            version=version,
            outcomes=OUTCOMES,
            totals=_totals(matrix),
            dtypes=list(dict.fromkeys(row["dtype"] for row in rows)),
            kinds=list(dict.fromkeys(row["kind"] for row in rows)),
            absent=[column["name"] for column in matrix["columns"] if column["reason"]],
            data=embedded({**packed, "signs": [sign for sign, _ in OUTCOMES.values()]}),
        )
    )


def _totals(matrix: Mapping[str, Any]) -> dict[str, int]:
    """Rows in which an outcome occurs, in the order of OUTCOMES."""
    seen = [{cell["outcome"] for cell in row["cells"].values()} for row in matrix["rows"]]
    counts = {outcome: sum(outcome in one for one in seen) for outcome in OUTCOMES}
    return {outcome: count for outcome, count in counts.items() if count}
