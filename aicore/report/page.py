"""What became of a model, as one HTML page: styles, scripts, libraries and data are inside it; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from aicore.ir import Graph
from aicore.passes import PassStep
from aicore.program import Program
from aicore.report.embedding import embedded, environment, finite, library
from aicore.report.graph_data import graph_data
from aicore.report.packing import number
from aicore.runtime import MemoryTimeline, Profile
from aicore.runtime.memory import size_text
from aicore.views import time_text

_MOST_LINES = 4000
"""Of one pass's diff; a reader of more uses `aicore inspect --diff`."""


def report_page(
    title: str,
    source: Graph,
    program: Program,
    profile: Profile | None,
    parity: Mapping[str, Any] | None,
    version: str,
    remarks: Sequence[str] = (),
) -> str:
    """The page as text.

    source: the graph before the passes. program: compiled with `trace=True`, and specialised.
    parity: what `aicore.testing.parity.to_json` gives, or None.
    remarks: what the reader should know of how it was made.
    Raises AicoreError for a program without a trace, InputError for a profile of other shapes than the latest.
    """
    explanation = program.explain()
    graph = program.graph if explanation.specialised is None else explanation.specialised.graph
    memory = program.memory()
    data = {
        "graph": graph_data(graph, program.plan, profile),
        "passes": [_pass(step) for step in program.trace.steps],
        "memory": [_timeline(one) for one in memory.plans],
        "profile": None if profile is None else _profile(profile),
        "parity": finite(parity),
    }
    template = environment().get_template("report/page.html.j2")
    return template.render(
        title=title,
        version=version,
        target=program.target,
        placement=explanation.placement,
        remarks=remarks,
        tiles=_tiles(source, graph, memory.plans, profile),
        has_parity=parity is not None,
        library=Markup(library("d3.min.js")),  # noqa: S704  # shipped with aicore
        data=Markup(embedded(data)),  # noqa: S704  # `embedded` escapes it
    )


def _tiles(
    source: Graph, graph: Graph, plans: Sequence[MemoryTimeline], profile: Profile | None
) -> list[tuple[str, str, str]]:
    """(label, figure, more of it): what a reader wants to know first."""
    arena, bound = sum(plan.arena for plan in plans), sum(plan.lower_bound for plan in plans)
    reuse = sum(plan.without_reuse for plan in plans)
    tiles = [
        ("nodes", f"{len(graph.nodes)}", f"from {len(source.nodes)} in the model"),
        ("arena", size_text(arena), f"{arena / bound - 1:.1%} above the lower bound" if bound else "nothing to hold"),
        ("without reuse", size_text(reuse), f"{reuse / arena:.1f} times as much" if arena else ""),
        ("constants", size_text(sum(plan.constants for plan in plans)), ""),
    ]
    if profile is not None:
        best = profile.wall if profile.best is None else profile.best
        median = "" if profile.run is None else f"at best; {time_text(profile.run)} in the median"
        tiles.insert(0, ("a run", time_text(best), median))
    return tiles


def _pass(step: PassStep) -> dict[str, Any]:
    row = step.row
    lines = step.diff.lines
    return {
        "number": step.number,
        "name": step.name,
        "stage": step.stage,
        "options": step.options,
        "matches": row.matches,
        "before": row.nodes_before,
        "after": row.nodes_after,
        "ms": number(row.ms + row.verify_ms),
        "error": row.error,
        "notes": list(row.notes),
        "rules": [[rule.name, rule.matches, rule.why_not] for rule in row.rules],
        "added": step.diff.added,
        "removed": step.diff.removed,
        "diff": [line.mark + line.text for line in lines[:_MOST_LINES]],
        "left_out": max(len(lines) - _MOST_LINES, 0),
    }


def _timeline(timeline: MemoryTimeline) -> dict[str, Any]:
    data = timeline.to_json()
    data["lifetimes"] = [
        [life.name, life.type, life.kind, life.offset, life.nbytes, life.start, life.end] for life in timeline.lifetimes
    ]
    return data


def _profile(profile: Profile) -> dict[str, Any]:
    data = profile.to_json()
    data["rows"] = [{key: number(value) for key, value in row.items()} for row in data["rows"]]
    return data
