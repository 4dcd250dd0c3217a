"""The plan: chosen kernels and buffer offsets for one device, as plain data. A launcher turns it into an Executable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from aicore.ir import Buffer, Node, TensorType
from aicore.kernels import Kernel, Selection, Settings
from aicore.records import dataclass
from aicore.runtime.memory import size_text


class Storage(StrEnum):
    """Who owns the bytes of a buffer."""

    INPUT = "input"
    """The caller; valid during the run, never written, but as an output that is bound to it (`computed_in_place`)."""
    CONSTANT = "constant"
    """The program; uploaded once, never written."""
    ARENA = "arena"
    """The arena of the run, at an offset."""
    OUTPUT = "output"
    """Fresh in each run, and the caller's afterwards."""
    DYNAMIC = "dynamic"
    """Made by the kernel while it runs: the size depends on data, or elements are no plain bytes (strings)."""


@dataclass(frozen=True)
class BufferPlan:
    """One tensor of the plan.

    root: index of the buffer that owns the bytes; its own index, unless this is an alias, a part of the root, or
        computed in place.
    storage: that of the root.
    offset: in bytes from the start of the arena; that of the root, unless this is a part of it.
    constant: the numbers, for CONSTANT.
    pitch: bytes from row to row of a part of the root whose rows (the last axis) lie apart, in the arena alone; None
        where all is dense, as it is for kernels that do not say `pitched`.
    """

    name: str
    type: TensorType
    storage: Storage
    root: int
    nbytes: int
    offset: int = 0
    constant: Buffer | None = None
    pitch: int | None = None


@dataclass(frozen=True)
class Step:
    """One launch.

    inputs, outputs: indices of buffers; None for an absent operand.
    workspace: (offset, bytes) of scratch memory inside the arena.
    dies: buffers that no later step reads; roots only.
    """

    node: Node
    selection: Selection
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, int] = (0, 0)
    dies: tuple[int, ...] = ()

    @property
    def kernel(self) -> Kernel:
        return self.selection.kernel

    @property
    def settings(self) -> Settings:
        """What was chosen of what the kernel offers, for its `bind`."""
        return self.selection.settings


@dataclass(frozen=True)
class OutputPlan:
    """One result: the buffer, and whether it must be copied out because its bytes have another owner."""

    buffer: int
    copied: bool = False


@dataclass(frozen=True)
class Memory:
    """Sizes in bytes.

    arena: what one run needs beside inputs, constants and outputs.
    lower_bound: the largest sum of buffers alive at one step; no arena can be smaller.
    without_reuse: the sum of all buffers, each with a place of its own.
    constants, outputs: bytes of weights, and of the results of one run.
    """

    arena: int
    lower_bound: int
    without_reuse: int
    constants: int
    outputs: int

    def __str__(self) -> str:
        return (
            f"arena {size_text(self.arena)} (lower bound {size_text(self.lower_bound)}, without reuse "
            f"{size_text(self.without_reuse)}), constants {size_text(self.constants)}, "
            f"outputs {size_text(self.outputs)}"
        )


@dataclass(frozen=True)
class Plan:
    """Everything that a launcher needs to run nodes on one device.

    inputs: indices of the buffers that the caller passes, in order.
    aliased: nodes that need no kernel, because their outputs are the bytes of an operand, or of all operands.
    notes: by node, how it comes that a Concat copies or not.
    poison: fill buffers with NaN patterns as soon as they are dead; a debugging aid.
    resident: the device's array for each constant; shared by all plans of a program.
    threads: how many threads a run may keep busy.
    limit: bytes that one run may take, for launchers that learn sizes while they run; None means what there is.
    """

    device: str
    buffers: tuple[BufferPlan, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[OutputPlan, ...]
    memory: Memory
    aliased: tuple[Node, ...] = ()
    poison: bool = False
    resident: Mapping[Buffer, Any] = field(default_factory=dict, repr=False)
    limit: int | None = None
    threads: int = 1
    notes: Mapping[Node, str] = field(default_factory=dict, repr=False)

    @property
    def nodes(self) -> int:
        """Nodes that the plan computes, with a kernel or by an alias."""
        return len(self.steps) + len(self.aliased)
