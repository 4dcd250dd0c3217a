"""What the tests of rewriting and passes share: an evaluator, runs of graphs, and comparison with another version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir import Graph, Op, TensorType, verify
from aicore.kernels import KernelTable
from aicore.ops.control import If
from aicore.passes import run_graph
from aicore.rewrite import Context
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
reference = ReferenceEvaluator(KernelTable(all_kernels()))
rng = np.random.default_rng(7)


def evaluate(op: Op, *arrays: Any) -> tuple[Any, ...]:
    """Reference kernels; an If runs the branch that its condition names."""
    if isinstance(op, If):
        branch = op.then_branch if bool(arrays[0]) else op.else_branch
        return tuple(run(branch, *arrays[1:]))
    return reference(op, *arrays)


def floats(*shape: int, dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(dtype)


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def context(**options: Any) -> Context:
    return Context(**{"evaluate": evaluate, **options})


def run(graph: Graph, *feeds: Any) -> list[Array]:
    """The outputs for inputs in order."""
    known = run_graph(graph, {v.name: f for v, f in zip(graph.inputs, feeds, strict=True)}, evaluate)
    return [known[v] if v.constant is None else v.constant.array for _, v in graph.outputs]


def assert_same(before: Graph, after: Graph, *feeds: Any, tolerance: float = 1e-5) -> None:
    """Both are well-formed and give the same numbers; bit for bit for tolerance 0."""
    verify(after)
    for old, new in zip(run(before, *feeds), run(after, *feeds), strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
        if tolerance == 0:
            assert old.tobytes() == new.tobytes()
        else:
            np.testing.assert_allclose(new, old, rtol=tolerance, atol=tolerance)


def lacking(*classes: type[Op]) -> Callable[..., str | None]:
    """A target without kernels for some ops."""

    def supports(op: Op, *types: TensorType | None) -> str | None:
        return f"there is none for {type(op).__name__}" if isinstance(op, classes) else None

    return supports


def refuse(op: Op, *arrays: Any) -> Any:
    raise UnsupportedError(f"no kernel for {type(op).__name__}")
