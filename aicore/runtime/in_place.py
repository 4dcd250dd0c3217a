"""Which outputs of a plan may be bound to the memory of an input: what a state that is kept once asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from aicore.runtime.plan import Plan, Storage


def computed_in_place(plan: Plan, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the pairs (output, input), by number in the plan, whose output may take the place of the input.

    The kernel that makes the output may write over the operand that is the input, and reads it nowhere else; no later
    step reads the input, and no output is a copy of it; the output's bytes are its own from the step that makes it on.
    Of pairs that name an output or an input twice, the first one counts.
    """
    buffers, steps = plan.buffers, plan.steps
    makers = {buffer: (number, place) for number, step in enumerate(steps) for place, buffer in enumerate(step.outputs)}
    last_reads = {buffers[i].root: number for number, step in enumerate(steps) for i in step.inputs if i is not None}
    given_back = {buffers[output.buffer].root for output in plan.outputs}

    @cache  # one step may update thousands of tensors
    def operands_of(number: int) -> tuple[Counter[int], set[tuple[int, int | None]]]:
        """How often a step reads each root, and the (result, operand's buffer) pairs of its op."""
        given = steps[number].inputs
        pairs = {(at, given[operand]) for at, operand in steps[number].node.op.inplace if operand < len(given)}
        return Counter(buffers[i].root for i in given if i is not None), pairs

    def is_safe(output: int, given: int) -> bool:
        result, source = plan.outputs[output], plan.inputs[given]
        made = buffers[result.buffer]
        owns = made.storage is Storage.OUTPUT and made.root == result.buffer and not result.copied
        if not owns or buffers[source].storage is not Storage.INPUT or made.type != buffers[source].type:
            return False
        number, place = makers[result.buffer]
        if not steps[number].kernel.inplace or last_reads.get(source) != number or source in given_back:
            return False
        read, paired = operands_of(number)
        return read[source] == 1 and (place, source) in paired

    found: dict[int, int] = {}
    taken: set[int] = set()
    for output, given in pairs:
        if output not in found and given not in taken and is_safe(output, given):
            found[output] = given
            taken.add(given)
    return list(found.items())
