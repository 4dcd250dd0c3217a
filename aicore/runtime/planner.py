"""From scheduled nodes and chosen kernels to a plan: who owns which bytes, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aicore.errors import AicoreError, PluginError
from aicore.ir import Buffer, Node, TensorType, Value, numpy_dtype
from aicore.kernels import Selection
from aicore.runtime.arena import Block, lower_bound, place
from aicore.runtime.plan import BufferPlan, Memory, OutputPlan, Plan, Step, Storage
from aicore.runtime.threads import thread_count


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How memory is planned; every choice gives the same numbers, bit for bit.

    reuse: let buffers share bytes when their lifetimes allow it, and compute in place.
    poison: fill buffers with NaN patterns as soon as they are dead, so that reading one shows.
    limit: bytes that one run may take; None means what the system has left.
    """

    reuse: bool = True
    poison: bool = False
    limit: int | None = None


def make_plan(
    device: str,
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    selections: Mapping[Node, Selection],
    options: MemoryOptions,
    resident: Mapping[Buffer, Any],
) -> Plan:
    """Plan the nodes, in this order, for one device. Nodes that only rename bytes need no selection."""
    draft = _Draft(reuse=options.reuse)
    draft.pending.update(v for node in nodes for v in node.inputs if v is not None)
    draft.pending.update(outputs)
    input_buffers = tuple(draft.add(value, Storage.INPUT) for value in inputs)
    for node in nodes:
        if node in selections:
            draft.add_step(node, selections[node])
        else:
            draft.add_alias(node)
    results = draft.claim_outputs(outputs)
    blocks = draft.blocks()
    offsets, arena = place(list(blocks.values()), options.reuse)
    at = dict(zip(blocks, offsets, strict=True))
    buffers = draft.finished_buffers(at)
    memory = Memory(
        arena=arena,
        lower_bound=lower_bound(list(blocks.values())),
        without_reuse=sum(block.nbytes for block in blocks.values()),
        constants=sum({b.constant: b.nbytes for b in buffers if b.constant is not None}.values()),
        outputs=sum(buffers[result.buffer].nbytes for result in results),
    )
    return Plan(
        device=device,
        buffers=buffers,
        steps=draft.finished_steps(at),
        inputs=input_buffers,
        outputs=results,
        memory=memory,
        aliased=tuple(draft.aliased),
        poison=options.poison,
        resident=resident,
        limit=options.limit,
        threads=thread_count(),
    )


def only_renames(node: Node) -> bool:
    """Whether every output is the bytes of an operand under another static shape, so that no kernel need run."""
    aliases = dict(node.op.alias)
    if len(aliases) != len(node.outputs):
        return False
    pairs = [(value, node.inputs[aliases[i]]) for i, value in enumerate(node.outputs)]
    return all(v is not None and _is_plain(v.type) and _is_plain(out.type) and _is_as_large(v, out) for out, v in pairs)


def _is_as_large(operand: Value, output: Value) -> bool:
    """Not so where what the op does depends on data, and the data are wrong: then its kernel says what is wrong."""
    return operand.type.size == output.type.size


def _asked(selection: Selection, node: Node, workspace: Any, types: Sequence[TensorType | None]) -> int:
    try:
        return int(workspace(node.op, *types, **selection.settings))
    except AicoreError:
        raise
    except Exception as error:  # a kernel may be a plugin's
        text = f"{node}: kernel {selection.kernel.name} cannot say which workspace it needs: "
        raise PluginError(f"{text}{type(error).__name__}: {error}") from error


def _is_plain(tensor: TensorType) -> bool:
    """Whether the size is known and elements are plain bytes, so that the arena can hold it."""
    return tensor.is_static and tensor.dtype != "string"


def _nbytes(tensor: TensorType) -> int:
    count = tensor.size if _is_plain(tensor) else 0
    return count * numpy_dtype(tensor.dtype).itemsize if isinstance(count, int) else 0


_Key = tuple[str, int]
"""What a block belongs to: ("buffer", index) or ("workspace", step)."""


@dataclass
class _Draft:
    """The plan while it grows. Lifetimes belong to roots: the buffers that own bytes."""

    reuse: bool
    pending: Counter[Value] = field(default_factory=Counter)
    buffers: list[BufferPlan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    aliased: list[Node] = field(default_factory=list)
    workspaces: dict[int, int] = field(default_factory=dict)
    index: dict[Value, int] = field(default_factory=dict)
    unread: Counter[int] = field(default_factory=Counter)
    """By root: uses still to come of all values that share its bytes. Being an output is a use that never comes."""
    born: dict[int, int] = field(default_factory=dict)
    last_use: dict[int, int] = field(default_factory=dict)
    claimed: set[int] = field(default_factory=set)

    def add(self, value: Value, storage: Storage, root: int | None = None) -> int:
        number = len(self.buffers)
        root = number if root is None else root
        plan = BufferPlan(value.name, value.type, storage, root, _nbytes(value.type), constant=value.constant)
        self.buffers.append(plan)
        self.index[value] = number
        self.unread[root] += self.pending[value]
        return number

    def add_alias(self, node: Node) -> None:
        operands = self._read(node)
        for output, operand in node.op.alias:
            source = operands[operand]
            assert source is not None  # only_renames saw to it
            self.add(node.outputs[output], self.buffers[source].storage, self.buffers[source].root)
        self.aliased.append(node)

    def add_step(self, node: Node, selection: Selection) -> None:
        step = len(self.steps)
        operands = self._read(node)
        for buffer in operands:
            if buffer is not None:
                self.last_use[self.buffers[buffer].root] = step
        in_place = self._in_place(node, selection, operands)
        outputs = tuple(self._add_result(value, in_place.get(i), step) for i, value in enumerate(node.outputs))
        self.steps.append(Step(node, selection, operands, outputs))
        types = [None if v is None else v.type for v in node.inputs]
        workspace = selection.kernel.workspace
        if workspace is not None and all(t is None or t.is_static for t in types):
            self.workspaces[step] = _asked(selection, node, workspace, types)

    def claim_outputs(self, outputs: Sequence[Value]) -> tuple[OutputPlan, ...]:
        """The first output of a root gets its bytes; others, and those of inputs and constants, are copied."""
        results = []
        for value in outputs:
            buffer = self._buffer(value)
            root = self.buffers[buffer].root
            owned = self.buffers[root].storage in (Storage.ARENA, Storage.DYNAMIC) and root not in self.claimed
            if owned:
                self.claimed.add(root)
            results.append(OutputPlan(buffer, copied=not owned))
        return tuple(results)

    def blocks(self) -> dict[_Key, Block]:
        found: dict[_Key, Block] = {}
        for root, start in self.born.items():
            if self.buffers[root].storage is Storage.ARENA and root not in self.claimed:
                found["buffer", root] = Block(self.buffers[root].nbytes, start, self.last_use[root])
        for step, nbytes in self.workspaces.items():
            found["workspace", step] = Block(nbytes, step, step)
        return found

    def finished_buffers(self, at: Mapping[_Key, int]) -> tuple[BufferPlan, ...]:
        finished = []
        for buffer in self.buffers:
            storage = self.buffers[buffer.root].storage
            if storage is Storage.ARENA and buffer.root in self.claimed:
                storage = Storage.OUTPUT
            offset = at.get(("buffer", buffer.root), 0)
            constant = self.buffers[buffer.root].constant
            finished.append(BufferPlan(buffer.name, buffer.type, storage, buffer.root, buffer.nbytes, offset, constant))
        return tuple(finished)

    def finished_steps(self, at: Mapping[_Key, int]) -> tuple[Step, ...]:
        dies: dict[int, list[int]] = {}
        for root in self.born:
            if root not in self.claimed:
                dies.setdefault(self.last_use[root], []).append(root)
        return tuple(
            Step(
                step.node,
                step.selection,
                step.inputs,
                step.outputs,
                (at.get(("workspace", i), 0), self.workspaces.get(i, 0)),
                tuple(dies.get(i, ())),
            )
            for i, step in enumerate(self.steps)
        )

    def _buffer(self, value: Value) -> int:
        if value not in self.index and value.constant is not None:
            return self.add(value, Storage.CONSTANT)
        return self.index[value]

    def _read(self, node: Node) -> tuple[int | None, ...]:
        operands = tuple(None if v is None else self._buffer(v) for v in node.inputs)
        for buffer in operands:
            if buffer is not None:
                self.unread[self.buffers[buffer].root] -= 1
        return operands

    def _add_result(self, value: Value, root: int | None, step: int) -> int:
        if root is not None:
            return self.add(value, Storage.ARENA, root)
        number = self.add(value, Storage.ARENA if _is_plain(value.type) else Storage.DYNAMIC)
        self.born[number] = self.last_use[number] = step
        return number

    def _in_place(self, node: Node, selection: Selection, operands: Sequence[int | None]) -> dict[int, int]:
        """The root whose bytes each output may overwrite, by output."""
        if not (self.reuse and selection.kernel.inplace):
            return {}
        found: dict[int, int] = {}
        roots = Counter(self.buffers[b].root for b in operands if b is not None)
        for output, operand in node.op.inplace:
            buffer = operands[operand] if operand < len(operands) else None
            if buffer is None or output in found or output >= len(node.outputs):
                continue
            root = self.buffers[buffer].root
            # An operand that shares its bytes with another one may be read again after it was overwritten.
            is_dead = self.unread[root] == 0 and roots[root] == 1 and root not in found.values()
            owned = self.buffers[root].storage is Storage.ARENA
            if is_dead and owned and self.buffers[buffer].type == node.outputs[output].type:
                found[output] = root
        return found
