"""A failure as a small folder that replays in a fresh process: a graph as text, arrays as .npy, and what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import AicoreError, ModelError
from aicore.ir import Graph, parse_graph, print_graph, text_constants
from aicore.numerics.difference import Difference, measure
from aicore.numerics.expected import Expected
from aicore.ops import CORE
from aicore.passes import Pass, run_passes
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.runtime.feeds import check_shapes, read_feeds
from aicore.testing.cases import Case
from aicore.testing.check import changed, declares, miscounted, mistyped
from aicore.testing.layouts import LAYOUTS, lay_out, same_bytes
from aicore.testing.outcomes import Verdict, said_by
from aicore.testing.reference import Reference
from aicore.testing.storage import from_plain, to_plain
from aicore.testing.targets import Target
from aicore.testing.wholes import pass_context, pass_named, wide_outputs

Array = np.ndarray[Any, Any]
Kind: TypeAlias = Literal["kernel", "pass", "program"]

_FORMAT = 1
_GROUPS = ("constants", "feeds", "want", "allowed")
_SCRIPT = '''\
"""Does the failure in this folder still happen? Exits with 1 if it does, with 0 if it is gone."""

import sys
from pathlib import Path

from aicore.testing import replay

result = replay(Path(__file__).parent)
print(result)
sys.exit(int(result.reproduced))
'''


@dataclass(frozen=True)
class Repro:
    """Everything that it takes to see a failure again.

    kind: `kernel` for nodes that the target computes wrongly, as they are; `pass` for a pass that changes what a graph
        means; `program` for a graph that goes wrong only as a whole, with all passes.
    target: as `Target.find` takes it.
    text: what was wrong.
    feeds, layout: arrays by input, and how they lay in memory.
    want, allowed: by output, what should come out, and the largest error of each element.
    pass_name: of the pass at fault.
    """

    kind: Kind
    graph: Graph
    target: str
    text: str
    feeds: Mapping[str, Array]
    want: Mapping[str, Array]
    allowed: Mapping[str, Array]
    layout: str = "dense"
    pass_name: str = ""


@dataclass(frozen=True)
class Replay:
    """Whether the failure happened again, and how it showed."""

    reproduced: bool
    text: str

    def __str__(self) -> str:
        return f"{'reproduced' if self.reproduced else 'not reproduced'}: {self.text}"


def case_repro(case: Case, target: Target, expected: Expected, verdict: Verdict) -> Repro:
    """A case that failed, as its check runs it: the op twice on the same operands."""
    graph = case.graph(2)
    count = len(expected.arrays)
    return Repro(
        kind="kernel",
        graph=graph,
        target=target.name,
        text=f"{case.id}: {verdict.reason}",
        feeds=case.feeds(),
        want={name: expected.arrays[i % count] for i, (name, _) in enumerate(graph.outputs)},
        allowed={name: expected.allowed[i % count] for i, (name, _) in enumerate(graph.outputs)},
        layout=case.layout,
    )


def write_repro(folder: Path, repro: Repro) -> Path:
    """Write the folder, which is made if it is not there: graph.txt, *.npy, repro.json and replay.py."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.txt").write_text(print_graph(repro.graph) + "\n", encoding="utf-8")
    groups = {
        "constants": text_constants(repro.graph),
        "feeds": repro.feeds,
        "want": repro.want,
        "allowed": repro.allowed,
    }
    written = {group: _write_arrays(folder, group, arrays) for group, arrays in groups.items()}
    about = {
        "format": _FORMAT,
        "kind": repro.kind,
        "target": repro.target,
        "text": repro.text,
        "layout": repro.layout,
        "pass": repro.pass_name,
        "outputs": [name for name, _ in repro.graph.outputs],
        "arrays": written,
    }
    (folder / "repro.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    (folder / "replay.py").write_text(_SCRIPT, encoding="utf-8")
    return folder


def read_repro(folder: Path, registry: PluginRegistry) -> Repro:
    """What `write_repro` wrote. Raises ModelError naming the folder of which a file is missing, damaged or changed."""
    try:
        return _read(folder, registry)
    except AicoreError as error:
        raise ModelError(f"{folder}: {error}") from error
    except Exception as error:  # what NumPy and JSON raise for a damaged file has a dozen types
        raise ModelError(f"{folder} is no repro that can be read: {type(error).__name__}: {error}") from error


def _read(folder: Path, registry: PluginRegistry) -> Repro:
    about = json.loads((folder / "repro.json").read_text(encoding="utf-8"))
    if about["format"] != _FORMAT:
        raise ModelError(f"format {about['format']!r}, this version of aicore reads {_FORMAT}")
    arrays = {
        group: {name: _read_array(folder / file, dtype) for name, file, dtype in about["arrays"][group]}
        for group in _GROUPS
    }
    text = (folder / "graph.txt").read_text(encoding="utf-8")
    graph = parse_graph(text, {**CORE, **registry.ops}, arrays.pop("constants"))
    target, wrong, pass_name = (str(about[name]) for name in ("target", "text", "pass"))
    repro = Repro(about["kind"], graph, target, wrong, layout=about["layout"], pass_name=pass_name, **arrays)
    _check(repro)
    return repro


def _read_array(file: Path, dtype: str) -> Array:
    with file.open("rb") as stream:  # whatever the file's name is, it holds one array
        return from_plain(np.lib.format.read_array(stream, allow_pickle=False), dtype)


def _check(repro: Repro) -> None:
    """Raise ValueError or InputError for what contradicts itself: replaying it would blame the target."""
    outputs = [name for name, _ in repro.graph.outputs]
    if repro.kind not in get_args(Kind):
        raise ValueError(f"kind is {repro.kind!r}; choose from {', '.join(get_args(Kind))}")
    if repro.layout not in ("dense", *LAYOUTS):
        raise ValueError(f"layout is {repro.layout!r}; choose from dense, {', '.join(LAYOUTS)}")
    check_shapes(repro.graph.inputs, [a.shape for a in read_feeds(repro.graph.inputs, repro.feeds)])
    if set(repro.want) != set(outputs) or set(repro.allowed) != set(outputs):
        raise ValueError(f"it expects {sorted(repro.want)} within {sorted(repro.allowed)}; the graph gives {outputs}")
    for name, allowed in repro.allowed.items():
        np.broadcast_to(np.asarray(allowed, np.float64), repro.want[name].shape)


def replay(folder: Path, registry: PluginRegistry | None = None) -> Replay:
    """Try the failure of a folder again, with the installed plugins or with those given.

    Raises ModelError for a folder that cannot be read, PluginError when its target cannot be used here, and ConfigError
    when the pass at fault is none of those here.
    """
    registry = plugin_registry() if registry is None else registry
    repro = read_repro(folder, registry)
    text = shows(repro, Target.find(repro.target, registry))
    return Replay(bool(text), text or f"all results are right; it was: {repro.text}")


def shows(repro: Repro, target: Target) -> str:
    """How the failure shows on the target; empty when it does not. Raises ConfigError for a pass that is not here."""
    one = pass_named(repro.pass_name, target) if repro.kind == "pass" else None
    try:
        return _replay_runs(repro, target) if one is None else _replay_pass(repro, one, target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # as in the check that failed: a backend may raise anything
        return said_by(error)


def _replay_runs(repro: Repro, target: Target) -> str:
    """Run twice, as it was run; what is wrong with the results, or an empty text."""
    whole = repro.kind == "program"
    attempts = target.attempts(None if whole else type(repro.graph.nodes[-1].op))
    for registry, watch in attempts:
        program = compile(repro.graph, target.device, fallback="quiet", optimize=whole, registry=registry)
        kept: list[tuple[list[Array], list[Array]]] = []
        counts = [0]
        for _ in range(2):
            feeds = {name: lay_out(array, repro.layout) for name, array in repro.feeds.items()}
            outputs = program.run(feeds)
            counts.append(watch.steps_run(target.device))
            kept.append((list(outputs.values()), [array.copy() for array in outputs.values()]))
            overwritten = [name for name, array in feeds.items() if not same_bytes(array, repro.feeds[name])]
            wrong = _compare(outputs, repro).text or mistyped(program, outputs)
            if wrong or overwritten:
                return wrong or f"operand {overwritten[0]} was overwritten"
        refusals = {} if program.placement is None else program.placement.refusals
        refused = [reason for node, reason in refusals.items() if declares(node, target, registry) and not whole]
        runs = [after - before for before, after in pairwise(counts)]
        idle = refused[0] if refused else miscounted(program, watch.planned(target.device), runs)
        if wrong := changed(*kept[0]) or idle:
            return wrong
    return ""


def _replay_pass(repro: Repro, one: Pass, target: Target) -> str:
    reference = Reference(target.registry)
    after, report = run_passes(repro.graph, [one], pass_context(target, reference))
    if report.errors:
        return report.errors[0]
    return _compare(wide_outputs(after, repro.feeds, reference), repro).text


def _compare(outputs: Mapping[str, Array], repro: Repro) -> Difference:
    total = Difference()
    for name, want in repro.want.items():
        total = total.worse(measure(outputs[name], want, repro.allowed[name]))
    return total


def _write_arrays(folder: Path, group: str, arrays: Mapping[str, Array]) -> list[tuple[str, str, str]]:
    """(name, file, element type) of each."""
    rows = []
    for i, (name, array) in enumerate(arrays.items()):
        plain, dtype = to_plain(np.asarray(array))
        file = f"{group}-{i}.npy"
        np.save(folder / file, plain, allow_pickle=False)
        rows.append((name, file, dtype))
    return rows


def file_name(text: str) -> str:
    """The text as the name of a file."""
    return re.sub(r"[^\w.-]+", "_", text)
