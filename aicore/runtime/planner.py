"""From scheduled nodes and chosen kernels to a plan: who owns which bytes, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

from aicore.errors import AicoreError, PluginError
from aicore.ir import Buffer, Node, TensorType, Value, numpy_dtype
from aicore.kernels import Selection
from aicore.records import dataclass
from aicore.runtime.arena import Block, lower_bound, place
from aicore.runtime.joins import Joins, Part, find_joins
from aicore.runtime.memory import size_text
from aicore.runtime.plan import BufferPlan, Memory, OutputPlan, Plan, Step, Storage
from aicore.runtime.threads import thread_count

_GROWTH = 1.05
"""How much larger the arena may be where Concats need no copy, over that of a plan in which they copy."""

_SMALL = 16 << 20
"""Bytes of an arena that are not worth a second plan."""


@dataclass(frozen=True)
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
    pitched: bool = False,
) -> Plan:
    """Plan the nodes, in this order, for one device. Nodes that only rename bytes need no selection.

    pitched: the device's launcher knows buffers with a pitch. Concats are left out then where their operands can be
        computed in place, unless that takes more memory.
    """
    asked: dict[tuple[Any, ...], int | None] = {}
    joins = find_joins(nodes, selections, outputs) if pitched and options.reuse else Joins()
    draft = _drafted(nodes, inputs, outputs, selections, _Draft(options.reuse, joins, asked))
    blocks = draft.blocks()
    if joins.parts:
        least = lower_bound(list(blocks.values()))
        # Else no plan can be so much smaller.
        if least > _SMALL and least > _busiest_step(draft, outputs) * _GROWTH:
            reason = f"copies: else a run would need at least {size_text(least)}"
            copying = _drafted(nodes, inputs, outputs, selections, _Draft(True, joins.without(reason), asked))
            others = copying.blocks()
            if least > lower_bound(list(others.values())) * _GROWTH:
                draft, blocks = copying, others
    offsets, arena = place(list(blocks.values()), options.reuse)
    at = dict(zip(blocks, offsets, strict=True))
    buffers = draft.finished_buffers(at)
    memory = Memory(
        arena=arena,
        lower_bound=lower_bound(list(blocks.values())),
        without_reuse=sum(block.nbytes for block in blocks.values()),
        constants=sum({b.constant: b.nbytes for b in buffers if b.constant is not None}.values()),
        outputs=sum(buffers[result.buffer].nbytes for result in draft.results),
    )
    return Plan(
        device=device,
        buffers=buffers,
        steps=draft.finished_steps(at),
        inputs=draft.inputs,
        outputs=draft.results,
        memory=memory,
        aliased=tuple(draft.aliased),
        poison=options.poison,
        resident=resident,
        limit=options.limit,
        threads=thread_count(),
        notes=draft.joins.notes,
    )


def _drafted(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    selections: Mapping[Node, Selection],
    draft: _Draft,
) -> _Draft:
    """The draft with all nodes in it."""
    draft.pending.update(v for node in nodes for v in node.inputs if v is not None)
    draft.pending.update(outputs)
    draft.inputs = tuple(draft.add(value, Storage.INPUT) for value in inputs)
    for node in nodes:
        if node in draft.joins.joined:
            draft.add_joined(node)
        elif node in selections:
            draft.add_step(node, selections[node])
        else:
            draft.add_alias(node)
    draft.results = draft.claim_outputs(outputs)
    return draft


def _busiest_step(draft: _Draft, outputs: Sequence[Value]) -> int:
    """Bytes of the arena that no plan can do without, however Concats are computed: what one step reads and writes.

    What shares bytes in the draft, or may be an output's, is left out as far as another plan might spare it.
    """
    spared = {draft.buffers[draft.index[value]].root for value in outputs}
    most = 0
    for step in draft.steps:
        read = _bytes_by_root(draft, step.inputs, spared)
        made = _bytes_by_root(draft, step.outputs, spared)
        if step.kernel.inplace:
            most = max(most, sum(read.values()), sum(made.values()))
        else:
            most = max(most, sum((read | made).values()))
    return most


def _bytes_by_root(draft: _Draft, buffers: Sequence[int | None], spared: set[int]) -> dict[int, int]:
    found = [draft.buffers[i] for i in buffers if i is not None]
    return {b.root: b.nbytes for b in found if b.storage is Storage.ARENA and b.root not in spared}


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


@lru_cache(maxsize=4096)
def _nbytes(tensor: TensorType) -> int:
    count = tensor.size if _is_plain(tensor) else 0
    return count * numpy_dtype(tensor.dtype).itemsize if isinstance(count, int) else 0


_Key = tuple[str, int]
"""What a block belongs to: ("buffer", index) or ("workspace", step)."""


@dataclass
class _Draft:
    """The plan while it grows. Lifetimes belong to roots: the buffers that own bytes.

    asked: the workspace by what kernels are told, so that they are asked once: networks repeat their blocks, and there
        may be two drafts.
    """

    reuse: bool
    joins: Joins
    asked: dict[tuple[Any, ...], int | None]
    inputs: tuple[int, ...] = ()
    results: tuple[OutputPlan, ...] = ()
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
    of_parts: set[int] = field(default_factory=set)
    """Roots of which other values are parts."""

    def add(
        self, value: Value, storage: Storage, root: int | None = None, offset: int = 0, pitch: int | None = None
    ) -> int:
        """A buffer; the offset is within its root."""
        number = len(self.buffers)
        root = number if root is None else root
        nbytes = _nbytes(value.type)
        plan = BufferPlan(value.name, value.type, storage, root, nbytes, offset, value.constant, pitch)
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

    def add_joined(self, node: Node) -> None:
        """A Concat whose operands lie where its result has them."""
        self._read(node)
        (result,) = node.outputs
        part = self.joins.parts.get(result)
        if part is not None:
            self._add_part(result, part, len(self.steps) - 1)
        self.aliased.append(node)

    def add_step(self, node: Node, selection: Selection) -> None:
        step = len(self.steps)
        operands = self._read(node)
        for buffer in operands:
            if buffer is not None:
                self.last_use[self.buffers[buffer].root] = step
        in_place = self._in_place(node, selection, operands)
        outputs = tuple(self._add_result(value, in_place.get(i), step) for i, value in enumerate(node.outputs))
        self.steps.append(Step(node, selection, operands, outputs, (0, 0), ()))
        workspace = self._workspace(node, selection, outputs)
        if workspace is not None:
            self.workspaces[step] = workspace

    def _workspace(self, node: Node, selection: Selection, outputs: Sequence[int]) -> int | None:
        """Bytes that the kernel asks for; None where it wants none, or sizes are not known."""
        workspace = selection.kernel.workspace
        if workspace is None:
            return None
        types = [None if v is None else v.type for v in node.inputs]
        pitched = any([self.buffers[i].pitch is not None for i in outputs])  # noqa: C419  # in half the time
        problem = (pitched, selection.kernel, node.op, *types, *selection.settings.items())
        try:
            return self.asked[problem]
        except KeyError:
            sized = all(t is None or t.is_static for t in types)
            ask = partial(workspace, pitched=True) if pitched else workspace
            found = self.asked[problem] = _asked(selection, node, ask, types) if sized else None
            return found

    def claim_outputs(self, outputs: Sequence[Value]) -> tuple[OutputPlan, ...]:
        """The first output of a root gets its bytes; others, and those of inputs, constants and parts, are copied."""
        results = []
        for value in outputs:
            buffer = self._buffer(value)
            root = self.buffers[buffer].root
            owned = self.buffers[root].storage in (Storage.ARENA, Storage.DYNAMIC)
            owned = owned and root not in self.claimed and root not in self.of_parts
            if owned:
                self.claimed.add(root)
            elif root in self.of_parts:
                self.last_use[root] = len(self.steps)  # it is copied after the last step
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
            if buffer.constant is not None or storage is Storage.INPUT:
                finished.append(buffer)  # as it was made
                continue
            if storage is Storage.ARENA and buffer.root in self.claimed:
                storage = Storage.OUTPUT
            offset = at.get(("buffer", buffer.root), 0) + buffer.offset
            constant = self.buffers[buffer.root].constant
            known = buffer.name, buffer.type, storage, buffer.root, buffer.nbytes
            finished.append(BufferPlan(*known, offset, constant, buffer.pitch))
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
        found = self.index.get(value)
        if found is None and value.constant is not None:
            return self.add(value, Storage.CONSTANT)
        return self.index[value] if found is None else found

    def _read(self, node: Node) -> tuple[int | None, ...]:
        operands: list[int | None] = []
        for value in node.inputs:
            buffer = None if value is None else self._buffer(value)
            if buffer is not None:
                self.unread[self.buffers[buffer].root] -= 1
            operands.append(buffer)
        return tuple(operands)

    def _add_result(self, value: Value, root: int | None, step: int) -> int:
        if root is not None:
            return self.add(value, Storage.ARENA, root)
        if value in self.joins.parts:
            return self._add_part(value, self.joins.parts[value], step)
        number = self.add(value, Storage.ARENA if _is_plain(value.type) else Storage.DYNAMIC)
        self.born[number] = self.last_use[number] = step
        return number

    def _add_part(self, value: Value, part: Part, step: int) -> int:
        if part.root not in self.index:
            self.of_parts.add(self._add_result(part.root, None, step))
        root = self.index[part.root]
        self.last_use[root] = step
        itemsize = numpy_dtype(value.dtype).itemsize
        pitch = None if part.pitch is None else part.pitch * itemsize
        return self.add(value, Storage.ARENA, root, part.offset * itemsize, pitch)

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
            if node.inputs[operand] in self.joins.parts or node.outputs[output] in self.joins.parts:
                continue
            root = self.buffers[buffer].root
            # An operand that shares its bytes with another one may be read again after it was overwritten.
            is_dead = self.unread[root] == 0 and roots[root] == 1 and root not in found.values()
            owned = self.buffers[root].storage is Storage.ARENA
            if is_dead and owned and self.buffers[buffer].type == node.outputs[output].type:
                found[output] = root
        return found
