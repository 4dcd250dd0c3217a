"""The struct Recurrent of graph_executor/rnn/recurrent.cuh, which kernels of both passes take."""

from __future__ import annotations

import math
from itertools import chain

from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore_cuda_ge.kernels._activations import IDENTITY, Params, recurrent_params
from aicore_cuda_ge.kernels._windows import ELEMENTS

SECONDS_OF_BYTE = 5.7e-13
"""Of r, that each step reads once for eight sequences: as measured."""
MOST_SEQUENCES = 65_535
LINEAR_GRU = 3
_CELLS = {RNN: 0, LSTM: 1, GRU: 2}
_ACTIVATIONS = 6


def cell_of(op: Recurrent) -> int:
    """As RecurrentCell numbers them."""
    if isinstance(op, GRU) and op.linear_before_reset:
        return LINEAR_GRU
    return _CELLS[type(op)]


def layer_params(
    op: Recurrent,
    dtype: str,
    sizes: tuple[int, int, int],
    arrays: tuple[int, int],
    offsets: tuple[int, int, int, int],
    constant: bool,
) -> Params:
    """sizes: steps, sequences, hidden units. arrays: operands, results. offsets: of the workspace's parts.

    constant: nothing writes r while a program runs.
    """
    activations = [recurrent_params(activated) for activated in op.settled_activations()]
    activations += [IDENTITY] * (_ACTIVATIONS - len(activations))
    return (
        *(ELEMENTS[dtype], cell_of(op), *sizes, op.directions, op.gates),
        *(op.layout, int(op.direction == "reverse"), int(isinstance(op, LSTM) and op.input_forget)),
        *(*arrays, *offsets, int(constant)),
        math.inf if op.clip is None else float(op.clip),
        *chain.from_iterable(activations),
    )


def rounded(floats: int) -> int:
    """Up to a multiple of 64 bytes."""
    return -(-floats // 16) * 16
