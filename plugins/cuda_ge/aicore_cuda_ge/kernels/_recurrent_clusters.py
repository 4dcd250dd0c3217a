"""Recurrent layers whose steps run inside one launch, in clusters of blocks that keep r in registers."""

from __future__ import annotations

from aicore.ops.recurrent import GRU, Recurrent
from aicore_cuda_ge.kernels._machine import LAUNCH_SECONDS, machine

MOST_UNITS = 256
"""Eight blocks, as many as every GPU with clusters has in one, keep 32 units each."""
_UNITS = 32
_SEQUENCES = (1, 2, 3, 4, 5, 6)
"""What a cluster may have, as in graph_executor/rnn."""
_STEP_PARTS = 7
"""A step without its sequences, in parts of what a sequence takes, as kernels weigh it to choose their clusters."""
_FORWARD, _BACK, _EXCHANGE = 0.9e-6, 1.35e-6, 0.7e-6
"""Seconds of a step with no sequences, forwards and backwards, and of one exchange more."""
_FORWARD_SEQUENCE, _BACK_SEQUENCE = 0.36e-6, 0.42e-6
"""Seconds of each sequence's products in a step, of four gates and 256 units."""


def refusal(hidden: int) -> str | None:
    """Why a layer cannot run in clusters."""
    if not machine().clusters:
        return "needs clusters of blocks (compute capability 9.0)"
    return f"takes at most {MOST_UNITS} hidden units" if hidden > MOST_UNITS else None


def seconds(op: Recurrent, steps: int, batch: int, hidden: int, back: bool = False) -> float:
    """Clusters run side by side as far as there is room, and others after them, as kernels lay sequences out.

    back: through the gradient's kernel.
    """
    blocks = max(-(-hidden // _UNITS), 1)
    at_once = _at_once(blocks, op.gates)

    def waves(sequences: int) -> int:
        return -(-op.directions * -(-batch // sequences) // at_once)

    sequences = min(_SEQUENCES, key=lambda count: waves(count) * (_STEP_PARTS + count))
    step, sequence = (_BACK, _BACK_SEQUENCE) if back else (_FORWARD, _FORWARD_SEQUENCE)
    products = sequences * sequence * op.gates / 4 * blocks * _UNITS / MOST_UNITS
    exchange = _EXCHANGE if isinstance(op, GRU) and not op.linear_before_reset else 0.0
    each = step + exchange + products
    return LAUNCH_SECONDS + waves(sequences) * steps * each


def _at_once(blocks: int, gates: int) -> int:
    """Clusters that find room: a sixteenth of the multiprocessors is in groups that no cluster fills.

    Where r needs few registers, a multiprocessor has two blocks.
    """
    of_each = 2 if gates == 1 else 1
    return max(machine().multiprocessors * of_each * 15 // 16 // blocks, 1)
