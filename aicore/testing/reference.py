"""The reference that backends are compared with: the reference kernels of the plugin that owns the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.errors import PluginError
from aicore.ir import Builder, Graph, Op, as_tuple, dtype_name
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import Expected, expect, widest
from aicore.plugins import PluginRegistry
from aicore.runtime import ReferenceEvaluator, is_control_flow
from aicore.testing.registries import RestrictedRegistry

if TYPE_CHECKING:
    from aicore.program import Program

Array = np.ndarray[Any, Any]
Operands: TypeAlias = "Sequence[Array | None]"


class Reference:
    """Evaluates ops with the reference kernels of the plugin that owns the device `cpu`.

    Raises PluginError when there is no such device.
    """

    def __init__(self, registry: PluginRegistry) -> None:
        devices = registry.devices()
        if "cpu" not in devices:
            raise PluginError(
                "conformance needs a reference: install a plugin that drives cpu, such as aicore-cpu-numpy"
            )
        owner = devices["cpu"][0].name
        kernels = [k for k in registry.kernels if k.device == "cpu" and k.variant == REFERENCE]
        # Another plugin's reference counts only for ops that the owner does not know: that plugin's own.
        self._table = KernelTable(sorted(kernels, key=lambda kernel: kernel.plugin != owner))
        self._evaluate = ReferenceEvaluator(self._table)
        self._registry = RestrictedRegistry(registry, kernels=kernels)

    def evaluate(self, op: Op, *operands: Array | None) -> tuple[Array, ...]:
        """The op's results in the operands' own types."""
        if not is_control_flow(op):
            return self._evaluate(op, *operands)
        builder = Builder()
        inputs = [
            None if a is None else builder.input(f"x{i}", dtype_name(a.dtype), a.shape) for i, a in enumerate(operands)
        ]
        outputs = as_tuple(builder.apply(op, *inputs))
        graph = builder.graph([v for v in inputs if v is not None], {str(i): v for i, v in enumerate(outputs)})
        results = self.run(graph, {v.name: a for v, a in zip(inputs, operands, strict=True) if v is not None})
        return tuple(results.values())

    def run(self, graph: Graph, feeds: Mapping[str, Array | None]) -> dict[str, Array]:
        """The outputs of a graph as it is: no pass changes it, and only reference kernels run."""
        return self.program(graph).run(feeds)

    def program(self, graph: Graph) -> Program:
        """The graph as it is, on the reference kernels, to be run often."""
        from aicore.api import compile  # noqa: A004  # only this needs a program

        return compile(graph, "cpu", fallback="error", optimize=False, registry=self._registry)

    def wide(self, op: Op, *operands: Array | None) -> tuple[Array, ...]:
        """The op's results with floats in float64, or in types of its own where it takes no float64."""
        return widest(self.evaluate, op, operands).results

    def expected(self, op: Op, operands: Operands, dtypes: Sequence[str]) -> Expected:
        """Results, and what a backend may be off by; see `expect`."""
        return expect(self.evaluate, op, operands, dtypes)
