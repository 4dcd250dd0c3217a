"""What choices among compiled kernels depend on: facts of the first GPU, or of an H200 where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aicore_cuda_ge import _graph_executor as native

FLOPS_EACH_MULTIPROCESSOR = 62.8e12 / 132
"""float32, with every number in registers, as measured on an H200."""
BYTES_EACH_SECOND = 4.0e12
"""Read and written by a copy on an H200."""
LAUNCH_SECONDS = 1.1e-6
"""From the beginning of one small kernel of a graph to that of the next."""


@dataclass(frozen=True)
class Machine:
    """multiprocessors: how many there are. capability: 90 for 9.0. shared_bytes: that one block may have."""

    multiprocessors: int = 132
    capability: int = 90
    shared_bytes: int = 227 << 10

    @property
    def clusters(self) -> bool:
        """Whether blocks can read each other's shared memory."""
        return self.capability >= 90


@cache
def machine() -> Machine:
    """The GPU that kernels are chosen for; others of this process are taken to be like it."""
    count, _ = native.device_count()
    if not count:
        return Machine()
    facts = native.device_facts(0)
    return Machine(facts["multiprocessors"], 10 * facts["major"] + facts["minor"], facts["shared_per_block"])
