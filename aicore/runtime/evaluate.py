"""Numbers for one op from the reference kernels: what constant folding and numeric checks of passes use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, UnsupportedError, error_text
from aicore.ir import Builder, Graph, Op, TensorType, Value, as_tuple, constant_value, is_fused, numpy_dtype
from aicore.kernels import KernelTable
from aicore.runtime.device import type_of
from aicore.runtime.memory import bytes_of, check_room

Array = np.ndarray[Any, Any]


class ReferenceEvaluator:
    """Evaluates ops on NumPy arrays with the kernels of the CPU, references before others."""

    def __init__(self, table: KernelTable, device: str = "cpu") -> None:
        self._table = table
        self._device = device

    def __call__(self, op: Op, *arrays: Array | None) -> tuple[Array, ...]:
        """The op's results; a fused op without a kernel is computed by its parts.

        Raises UnsupportedError when there is no kernel for it, and ExecutionError when its kernel fails.
        """
        arrays = tuple(None if a is None else np.asarray(a, order="C") for a in arrays)  # as in a plan, none is a view
        types = [None if a is None else type_of(a) for a in arrays]
        kernel = self._table.reference(type(op), self._device)
        if kernel is None or kernel.reason_against(op, *types) is not None:
            kernels = self._table.serving(op, self._device)
            kernel = next((k for k in kernels if k.reason_against(op, *types) is None), None)
        if kernel is None:
            return self._by_parts(op, arrays)
        values = [None if a is None else constant_value(a) for a in arrays]
        expected = as_tuple(op.infer(*values))
        settings = kernel.settings[0]
        workspace = 0 if kernel.workspace is None else kernel.workspace(op, *types, **settings)
        check_room(bytes_of(expected) + workspace, f"the result of {type(op).__name__}")
        options: dict[str, Any] = {}
        if not kernel.returns:
            options["out"] = _room(expected)
        if kernel.workspace is not None:
            options["workspace"] = np.empty(workspace, np.uint8)
        try:
            with np.errstate(all="ignore"):
                function = kernel.bind(op, types, arrays, **settings) if kernel.bind else partial(kernel.function, op)
                results = function(*arrays, **options)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit too: a kernel may be a plugin's
            text = f"kernel {kernel.name} failed on {types}: {error_text(error)}"
            raise ExecutionError(text) from error
        written = options.get("out")
        return _checked(kernel.name, as_tuple(results if written is None else written), expected)

    def graph(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of a graph, node by node."""
        known: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True))
        for node in graph.nodes:
            operands = [None if v is None else _number(v, known) for v in node.inputs]
            known.update(zip(node.outputs, self(node.op, *operands), strict=True))
        return [_number(value, known) for _, value in graph.outputs]

    def _by_parts(self, op: Op, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        if not is_fused(op):
            raise UnsupportedError(f"no kernel for {type(op).__name__} on {self._device}")
        builder = Builder()
        inputs = [None if a is None else Value(f"x{i}", type_of(a)) for i, a in enumerate(arrays)]
        outputs = as_tuple(op.decompose(builder, *inputs))
        graph = builder.graph([v for v in inputs if v is not None], {str(i): v for i, v in enumerate(outputs)})
        return tuple(self.graph(graph, [a for a in arrays if a is not None]))


def _number(value: Value, known: dict[Value, Array]) -> Array:
    return known[value] if value.constant is None else value.constant.array


def _room(types: Sequence[TensorType]) -> Any:
    if not all(t.is_static and t.dtype != "string" for t in types):
        return None
    arrays = tuple(np.empty(t.static_shape, numpy_dtype(t.dtype)) for t in types)
    return arrays[0] if len(arrays) == 1 else arrays


def _checked(name: str, results: tuple[Any, ...], expected: Sequence[TensorType]) -> tuple[Array, ...]:
    arrays = tuple(np.asarray(result) for result in results)
    if len(arrays) != len(expected) or any(
        type_of(a).dtype != t.dtype or (t.is_static and a.shape != t.shape)
        for a, t in zip(arrays, expected, strict=True)
    ):
        got, want = ", ".join(str(type_of(a)) for a in arrays), ", ".join(map(str, expected))
        raise ExecutionError(f"kernel {name} returned {got}, expected {want}")
    return arrays
