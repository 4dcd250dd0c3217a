"""From what was observed to scales and zero points, one for each group of tensors that share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicore.ir import Graph
from aicore.rewrite import Context
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.specs import resolve


@dataclass(frozen=True, eq=False)
class ResolveSharing(JobPass):
    """Gives every tensor with a spec its scale and zero point."""

    name: ClassVar[str] = "resolve-sharing-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        self.job.params = resolve(self.job.specs, self.job.observers)
        return graph
