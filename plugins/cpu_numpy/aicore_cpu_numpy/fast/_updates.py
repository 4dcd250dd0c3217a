"""The formulas of optimisers on one block of a parameter: they write to the results and to two rooms alone.

Each takes (op, block, g, decay, numbers). g is the gradient as it counts, already scaled and with weight decay where
that is part of it; it is only read. Results may lie where their operands lie: each is written after the last read of
what it may overwrite. numbers: what `rates` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.optimizers import AdagradUpdate, AdamUpdate, LambUpdate, LionUpdate, RMSpropUpdate, SGDUpdate
from aicore.records import dataclass
from aicore_cpu_numpy.fast._parallel import Array

Numbers: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Block:
    """Elements of one parameter: p, g, slots, then the new p and slots; and rooms for what is in between.

    tensor: number of the parameter. number: of the block among all. mine: a room for the gradient as it counts.
    """

    tensor: int
    number: int
    p: Array
    g: Array
    slots: Sequence[Array]
    new: Array
    kept: Sequence[Array]
    room: Array
    second: Array
    mine: Array

    def gradient(self, scale: float | None, decay: float) -> Array:
        """Scaled, and with the weight decay that is part of it."""
        g = self.g
        if scale is not None:
            g = np.multiply(g, scale, out=self.mine)
        if decay:
            np.multiply(self.p, decay, out=self.room)
            g = np.add(g, self.room, out=self.mine)
        return g


def sgd(op: SGDUpdate, x: Block, g: Array, decay: float, numbers: Numbers) -> None:
    if not op.momentum:
        return step(x, g, numbers[0])
    (buffer,) = x.kept
    np.multiply(x.slots[0], op.momentum, out=buffer)
    np.add(buffer, g, out=buffer)
    if not op.nesterov:
        return step(x, buffer, numbers[0])
    np.multiply(buffer, op.momentum, out=x.room)
    np.add(x.room, g, out=x.room)
    return step(x, x.room, numbers[0])


def rmsprop(op: RMSpropUpdate, x: Block, g: Array, decay: float, numbers: Numbers) -> None:
    blend_squares(x, g, x.slots[0], x.kept[0], op.alpha)
    centre = x.kept[0]
    if op.centered:
        move_mean(x, g, x.slots[1], x.kept[1], 1 - op.alpha)
        np.multiply(x.kept[1], x.kept[1], out=x.room)
        centre = np.subtract(centre, x.room, out=x.room)
    divide_by_root(x, g, centre, op.eps)
    if not op.momentum:
        return step(x, x.room, numbers[0])
    np.multiply(x.slots[-1], op.momentum, out=x.kept[-1])
    np.add(x.kept[-1], x.room, out=x.kept[-1])
    return step(x, x.kept[-1], numbers[0])


def adagrad(op: AdagradUpdate, x: Block, g: Array, decay: float, numbers: Numbers) -> None:
    np.multiply(g, g, out=x.room)
    np.add(x.slots[0], x.room, out=x.kept[0])
    divide_by_root(x, g, x.kept[0], op.eps)
    step(x, x.room, numbers[0])


def adam(op: AdamUpdate, x: Block, g: Array, decay: float, numbers: Numbers) -> None:
    rate, eps, learning_rate = numbers
    move_moments(op, x, g)
    if op.amsgrad:
        np.maximum(x.slots[2], x.kept[1], out=x.kept[2])
    divide_by_root(x, x.kept[0], x.kept[-1], eps)
    if not (decay and op.decoupled):
        return step(x, x.room, rate)
    np.multiply(x.room, rate, out=x.room)
    np.multiply(x.p, 1 - learning_rate * decay, out=x.new)
    np.subtract(x.new, x.room, out=x.new)
    return None


def lamb_direction(op: LambUpdate, x: Block, decay: float, numbers: Numbers) -> None:
    """r in the first room, of the new moments."""
    divide_by_root(x, x.kept[0], x.kept[1], numbers[1])
    np.multiply(x.room, numbers[0], out=x.room)
    if decay:
        np.multiply(x.p, decay, out=x.second)
        np.add(x.room, x.second, out=x.room)


def lion(op: LionUpdate, x: Block, g: Array, decay: float, numbers: Numbers) -> None:
    np.multiply(x.slots[0], op.beta1, out=x.room)
    np.multiply(g, 1 - op.beta1, out=x.second)
    np.add(x.room, x.second, out=x.room)
    np.sign(x.room, out=x.room)
    np.multiply(g, 1 - op.beta2, out=x.second)
    np.multiply(x.slots[0], op.beta2, out=x.kept[0])
    np.add(x.kept[0], x.second, out=x.kept[0])
    if decay:
        np.multiply(x.p, decay, out=x.second)
        np.add(x.room, x.second, out=x.room)
    step(x, x.room, numbers[0])


FORMULAS: dict[type[Any], Callable[[Any, Block, Array, float, Numbers], None]] = {
    SGDUpdate: sgd,
    RMSpropUpdate: rmsprop,
    AdagradUpdate: adagrad,
    AdamUpdate: adam,
    LionUpdate: lion,
}


def rates(op: Any, learning_rate: float, step: int) -> Numbers:
    """What depends on the learning rate and the step, in float64 as PyTorch computes it."""
    if isinstance(op, AdagradUpdate):
        return (learning_rate / (1 + (step - 1) * op.lr_decay),)
    if not isinstance(op, (AdamUpdate, LambUpdate)):
        return (learning_rate,)
    # lr / c1 m / (sqrt(v) / sqrt(c2) + eps) = lr sqrt(c2) / c1 m / (sqrt(v) + eps sqrt(c2)), in one pass less.
    left1, left2 = 1 - np.float64(op.beta1) ** step, 1 - np.float64(op.beta2) ** step
    root = np.sqrt(left2)  # NumPy's, for numbers of a step below 1 are NaN or infinite and no error
    ratio = float(root / left1)
    return (ratio if isinstance(op, LambUpdate) else learning_rate * ratio), float(op.eps * root), learning_rate


def step(x: Block, change: Array, rate: float) -> None:
    """p less the rate times what may lie in the first room."""
    np.multiply(change, rate, out=x.room)
    np.subtract(x.p, x.room, out=x.new)


def divide_by_root(x: Block, top: Array, squares: Array, eps: float) -> None:
    """top / (root of the squares + eps) in the first room."""
    np.sqrt(squares, out=x.room)
    np.add(x.room, eps, out=x.room)
    np.divide(top, x.room, out=x.room)


def move_moments(op: Any, x: Block, g: Array) -> None:
    move_mean(x, g, x.slots[0], x.kept[0], 1 - op.beta1)
    blend_squares(x, g, x.slots[1], x.kept[1], op.beta2)


def move_mean(x: Block, g: Array, old: Array, new: Array, part: float) -> None:
    np.subtract(g, old, out=x.room)
    np.multiply(x.room, part, out=x.room)
    np.add(old, x.room, out=new)


def blend_squares(x: Block, g: Array, old: Array, new: Array, weight: float) -> None:
    np.multiply(g, g, out=x.room)
    np.multiply(x.room, 1 - weight, out=x.room)
    np.multiply(old, weight, out=new)
    np.add(new, x.room, out=new)
