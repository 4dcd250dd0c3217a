"""The float model as quantisation wants it: constants and BatchNorm folded, functions recognised."""

from __future__ import annotations

from aicore.ir import Graph
from aicore.kernels import KernelTable
from aicore.passes import Pass, Report, default_passes, run_passes
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.rewrite import Context
from aicore.runtime import ReferenceEvaluator
from aicore_int8_quant.errors import QuantizationError

WANTED = frozenset(
    {
        *("fold-constants", "fold-shapes", "choose-branches", "remove-identities", "cancel-transposes"),
        *(
            "simplify-arithmetic",
            "merge-common",
            "fold-batchnorm",
            "fold-weights",
            "recognise-functions",
            "remove-dead",
        ),
    }
)
"""Passes of the core whose result is made of standard ONNX ops alone."""


def prepared(graph: Graph, registry: PluginRegistry | None = None) -> Graph:
    """The graph after the passes that make it smaller and leave it standard."""
    return run_all(graph, [one for one in default_passes() if one.name in WANTED], registry)[0]


def run_all(graph: Graph, passes: list[Pass], registry: PluginRegistry | None = None) -> tuple[Graph, Report]:
    """The graph after all passes; one that fails raises QuantizationError, for nothing else would say so."""
    table = KernelTable((registry or plugin_registry()).kernels)
    result, report = run_passes(graph, passes, Context(evaluate=ReferenceEvaluator(table)))
    if report.errors:
        raise QuantizationError(report.errors[0])
    return result, report
