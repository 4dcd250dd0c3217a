"""Updates of all parameters of a model in one op, and the norm that gradients are clipped by.

An update takes (learning_rate, step, scale?, n parameters, n gradients, n of each slot) and gives (n new parameters, n
of each new slot). It holds no state: slots, such as a mean of gradients, go in and come out.
learning_rate: floating point, rank 0. step: int64, rank 0; 1 at the first update. scale: floating point, rank 0; what
gradients are multiplied by first, such as 1 / (what the loss was scaled by) or what clips their norm.
Parameters are floating point; the gradient and the slots of a parameter have its type. float16 and bfloat16 are
computed in float32. `weight_decay` counts for the parameters whose entry of `decays` is True; for all if it is empty.

In the formulas p is a parameter, g its gradient, lr the learning rate, t the step, w the weight decay. Where PyTorch
has the optimiser, they are those of torch.optim, in its order of operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats, scalar
from aicore.ops.base import ensure, need_dtype, need_rank, same_dim, same_dtype, shape_text

SCALARS = 3
"""Operands before the parameters: learning_rate, step, scale."""


@op_class
class _Update(Op):
    """count: how many parameters there are."""

    count: int = 1
    weight_decay: float = 0.0
    decays: tuple[bool, ...] = ()

    flops: ClassVar[int] = 12

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots of a parameter, those of PyTorch's state, in the order of the operands."""
        raise NotImplementedError

    @property
    def couples(self) -> bool:
        """Whether weight decay is added to the gradient, so that slots see it."""
        return True

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:  # depends on how many there are
        """Parameters over parameters and slots over slots; gradients lie between them."""
        parameters = [(i, SCALARS + i) for i in range(self.count)]
        slots = [(i, SCALARS + self.count + i) for i in range(self.count, self.n_outputs())]
        return (*parameters, *slots)

    def decay_of(self, index: int) -> float:
        """The weight decay of a parameter."""
        return self.weight_decay if not self.decays or self.decays[index] else 0.0

    def kind_of_operand(self, index: int) -> int:
        """A number that the parameters have in common, and so have the gradients, and the tensors of each slot."""
        return index if index < SCALARS else SCALARS + (index - SCALARS) // self.count

    def n_outputs(self) -> int:
        return self.count * (1 + len(self.slots))

    def infer(self, learning_rate: Value, step: Value, scale: Value | None = None, *tensors: Value) -> Types:
        ensure(self.count >= 1, f"count {self.count} is below 1")
        ensure(len(self.decays) in (0, self.count), f"decays has {len(self.decays)} entries for {self.count} tensors")
        need_dtype(step, ("int64",))
        for value in (learning_rate, step, scale):
            if value is not None:
                need_rank(value, 0)
        for value in (learning_rate, scale):
            if value is not None:
                need_dtype(value, FLOATS)
        wanted = self.count * (2 + len(self.slots))
        roles = ", ".join(("parameters", "gradients", *self.slots))
        ensure(len(tensors) == wanted, f"has {len(tensors)} tensors, wants {wanted}: {self.count} each of {roles}")
        parameters = tensors[: self.count]
        for i, value in enumerate(tensors):
            _check_like(value, parameters[i % self.count])
        types = tuple(value.type for value in parameters) * (1 + len(self.slots))
        return types if len(types) > 1 else types[0]

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        size: Dim = 0
        for value in inputs[SCALARS : SCALARS + self.count]:
            size = size + (0 if value is None else value.type.size)
        return size * self.flops, moved_bytes(self.infer(*inputs), inputs)  # type: ignore[arg-type]

    def decompose(self, op: Any, *inputs: Any) -> Any:
        learning_rate, step, scale, *tensors = inputs
        updated = []
        for i in range(self.count):
            own = tensors[i :: self.count]
            dtype = own[0].dtype
            if dtype in ("float16", "bfloat16"):
                own = [op.Cast(value, to="float32") for value in own]
            p, g, *slots = own
            if scale is not None:
                g = op.Mul(g, op.CastLike(scale, g))
            results = self.update(op, op.CastLike(learning_rate, p), step, p, g, *slots, decay=self.decay_of(i))
            updated.append([op.Cast(value, to=dtype) if value.dtype != dtype else value for value in results])
        found = tuple(value for role in zip(*updated, strict=True) for value in role)
        return found if len(found) > 1 else found[0]

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        """The new parameter and slots of one tensor, built under `op`."""
        raise NotImplementedError

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        """Fields to sample, beside the defaults."""
        return ()

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        shapes = ((3, 5), (7,), (), (0, 4))
        for given in ({}, *cls.variants()):
            op = cls(count=len(shapes), **given)
            yield Sample(op, _operands(op, rng, shapes, step=3), note=str(given) if given else "defaults")
        decayed = cls(count=2, weight_decay=0.1)
        yield Sample(decayed, _operands(decayed, rng, ((4, 3), (3,)), scale=0.25), note="weight decay, scaled")
        mixed = cls(count=2, weight_decay=0.1, decays=(True, False))
        yield Sample(mixed, _operands(mixed, rng, ((4, 3), (3,)), step=1000), note="weight decay of the first alone")
        long = cls(count=1)
        yield Sample(long, _operands(long, rng, ((5003,),)), note="one long tensor, first step")


@op_class
class SGDUpdate(_Update):
    """Stochastic gradient descent. g += w p; with momentum: buf = momentum buf + g, and g becomes buf, with nesterov
    g + momentum buf; then p -= lr g.

    Slot with momentum: momentum_buffer, zeros at first. Source: torch.optim.SGD with dampening 0.
    """

    momentum: float = 0.0
    nesterov: bool = False

    flops = 6

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum else ()

    def infer(self, *inputs: Any) -> Types:
        ensure(self.momentum or not self.nesterov, "nesterov needs a momentum")
        return super().infer(*inputs)

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        g = _decayed(op, g, p, decay)
        if not self.momentum:
            return (op.Sub(p, op.Mul(lr, g)),)
        buffer = op.Add(op.Mul(slots[0], op.scalar(self.momentum, p)), g)
        g = op.Add(g, op.Mul(buffer, op.scalar(self.momentum, p))) if self.nesterov else buffer
        return op.Sub(p, op.Mul(lr, g)), buffer

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        return {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}


@op_class
class RMSpropUpdate(_Update):
    """g += w p; square_avg = alpha square_avg + (1 - alpha) g^2; avg = sqrt(square_avg) + eps, where centered takes
    grad_avg^2 from square_avg first, with grad_avg += (1 - alpha) (g - grad_avg); then p -= lr g / avg, or with
    momentum: buf = momentum buf + g / avg, p -= lr buf.

    Slots, zeros at first: square_avg, grad_avg if centered, momentum_buffer with momentum. Source: torch.optim.RMSprop.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        centered = ("grad_avg",) if self.centered else ()
        return ("square_avg", *centered, *(("momentum_buffer",) if self.momentum else ()))

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        g = _decayed(op, g, p, decay)
        squares = _blended(op, slots[0], op.Mul(g, g), self.alpha)
        new, centre = [squares], squares
        if self.centered:
            new.append(_towards(op, slots[1], g, 1 - self.alpha))
            centre = op.Sub(squares, op.Mul(new[1], new[1]))
        change = op.Div(g, op.Add(op.Sqrt(centre), op.scalar(self.eps, p)))
        if self.momentum:
            change = op.Add(op.Mul(slots[-1], op.scalar(self.momentum, p)), change)
            new.append(change)
        return op.Sub(p, op.Mul(lr, change)), *new

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        yield {"alpha": 0.8, "eps": 1e-2}
        yield {"momentum": 0.9}
        yield {"momentum": 0.5, "centered": True, "weight_decay": 0.1}


@op_class
class AdagradUpdate(_Update):
    """g += w p; sum += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps).

    Slot: sum, at first what the optimiser chooses, 0 by default. Source: torch.optim.Adagrad.
    """

    lr_decay: float = 0.0
    eps: float = 1e-10

    flops = 8

    @property
    def slots(self) -> tuple[str, ...]:
        return ("sum",)

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        g = _decayed(op, g, p, decay)
        total = op.Add(slots[0], op.Mul(g, g))
        if self.lr_decay:
            earlier = op.CastLike(op.Sub(step, op.scalar(1, step)), p)
            lr = op.Div(lr, op.Add(op.Mul(earlier, op.scalar(self.lr_decay, p)), op.scalar(1.0, p)))
        change = op.Div(g, op.Add(op.Sqrt(total), op.scalar(self.eps, p)))
        return op.Sub(p, op.Mul(lr, change)), total

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        return ({"lr_decay": 0.5, "eps": 1e-2},)


@op_class
class AdamUpdate(_Update):
    """exp_avg += (1 - beta1) (g - exp_avg); exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2;
    p -= lr / (1 - beta1^t) exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^t) + eps).

    Weight decay is g += w p before all that, or decoupled (AdamW) p -= lr w p. amsgrad takes the root of the largest
    exp_avg_sq so far. Slots, zeros at first: exp_avg, exp_avg_sq, max_exp_avg_sq with amsgrad.
    Source: torch.optim.Adam and AdamW; Kingma and Ba 2015; Reddi et al. 2018; Loshchilov and Hutter 2019.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = False
    decoupled: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    @property
    def couples(self) -> bool:
        return not self.decoupled

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        if decay and self.decoupled:
            p = op.Mul(p, op.Sub(op.scalar(1.0, p), op.Mul(lr, op.scalar(decay, p))))
        else:
            g = _decayed(op, g, p, decay)
        mean = _towards(op, slots[0], g, 1 - self.beta1)
        squares = _blended(op, slots[1], op.Mul(g, g), self.beta2)
        new = [mean, squares]
        if self.amsgrad:
            new.append(op.Max(slots[2], squares))
        root = op.Div(op.Sqrt(new[-1]), op.Sqrt(_begun(op, self.beta2, step, p)))
        size = op.Div(lr, _begun(op, self.beta1, step, p))
        change = op.Div(mean, op.Add(root, op.scalar(self.eps, p)))
        return op.Sub(p, op.Mul(size, change)), *new

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        yield {"beta1": 0.5, "beta2": 0.75, "eps": 1e-2}
        yield {"amsgrad": True}
        yield {"decoupled": True, "weight_decay": 0.1}


@op_class
class LambUpdate(_Update):
    """Adam's direction, as long as the parameter itself: exp_avg and exp_avg_sq as in AdamUpdate,
    r = exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps) + w p; p -= lr |p| / |r| r.

    |p| / |r| is the trust ratio of the whole tensor, and 1 where either norm is 0. Slots: exp_avg, exp_avg_sq, zeros at
    first. Source: You et al., Large batch optimization for deep learning (2020), algorithm 2, with phi(z) = z.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6

    flops = 20
    couples = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        mean = _towards(op, slots[0], g, 1 - self.beta1)
        squares = _blended(op, slots[1], op.Mul(g, g), self.beta2)
        root = op.Sqrt(op.Div(squares, _begun(op, self.beta2, step, p)))
        change = op.Div(op.Div(mean, _begun(op, self.beta1, step, p)), op.Add(root, op.scalar(self.eps, p)))
        change = _decayed(op, change, p, decay)
        sums = [op.ReduceSumSquare(value, keepdims=0) for value in (p, change)]
        has_none = op.Or(*(op.Equal(total, op.scalar(0.0, p)) for total in sums))
        trust = op.Sqrt(op.Div(*(op.Where(has_none, op.scalar(1.0, p), total) for total in sums)))
        return op.Sub(p, op.Mul(op.Mul(lr, trust), change)), mean, squares

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        return ({"beta1": 0.5, "beta2": 0.75, "eps": 1e-2},)


@op_class
class LionUpdate(_Update):
    """p -= lr (sign(beta1 exp_avg + (1 - beta1) g) + w p); exp_avg = beta2 exp_avg + (1 - beta2) g.

    The sign of 0 is 0. Slot: exp_avg, zeros at first.
    Source: Chen et al., Symbolic discovery of optimization algorithms (2023), algorithm 2.
    """

    beta1: float = 0.9
    beta2: float = 0.99

    flops = 9
    couples = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("exp_avg",)

    def update(self, op: Any, lr: Any, step: Any, p: Any, g: Any, *slots: Any, decay: float) -> tuple[Any, ...]:
        direction = op.Sign(_blended(op, slots[0], g, self.beta1))
        change = _decayed(op, direction, p, decay)
        return op.Sub(p, op.Mul(lr, change)), _blended(op, slots[0], g, self.beta2)

    @classmethod
    def variants(cls) -> Iterable[dict[str, Any]]:
        return ({"beta1": 0.5, "beta2": 0.75},)


@op_class
class GlobalNorm(Op):
    """The square root of the sum of squares of all elements of all operands: float32, or float64 if they are.

    The order of summation depends on sizes alone, so that the same numbers give the same bits. Floating point.
    """

    def infer(self, *tensors: Value) -> Types:
        ensure(len(tensors) > 0, "takes one operand or more")
        same_dtype(*tensors)
        need_dtype(tensors[0], FLOATS)
        return TensorType("float64" if tensors[0].dtype == "float64" else "float32", ())

    def cost(self, *tensors: Value | None) -> tuple[Dim, Dim]:
        size: Dim = 0
        for value in tensors:
            size = size + (0 if value is None else value.type.size)
        return size * 2, moved_bytes(self.infer(*tensors), tensors)  # type: ignore[arg-type]

    def decompose(self, op: Any, *tensors: Any) -> Any:
        wide = [op.Cast(value, to="float64") for value in tensors]
        total = op.Sum(*(op.ReduceSumSquare(value, keepdims=0) for value in wide))
        return op.Cast(op.Sqrt(total), to="float64" if tensors[0].dtype == "float64" else "float32")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4)), floats(rng, (5,)), floats(rng, ())), note="three tensors")
        yield Sample(cls(), (floats(rng, (0, 3)), floats(rng, (7,))), note="zero size")
        yield Sample(cls(), (floats(rng, (70001,)), floats(rng, (33, 5))), note="a long tensor")
        yield Sample(cls(), (np.array([3, np.inf], np.float32), floats(rng, (2,))), note="infinity")
        yield Sample(cls(), (np.array([3, np.nan, np.inf], np.float32), floats(rng, (2,))), note="NaN")
        yield Sample(cls(), tuple(floats(rng, (i % 5 + 1,)) for i in range(150)), note="many tensors")


def grouped(op: Any, tensors: Sequence[Any]) -> list[list[Any]]:
    """What belongs to each parameter of an update, of all operands after the scalars, or of all results."""
    return [list(tensors[i :: op.count]) for i in range(op.count)]


def _check_like(value: Value, parameter: Value) -> None:
    need_dtype(value, FLOATS)
    same_dtype(value, parameter)
    a, b = value.shape, parameter.shape
    fits = a is None or b is None or (len(a) == len(b) and all(map(same_dim, a, b)))
    ensure(fits, f"%{value.name} is {shape_text(a)}, and the parameter %{parameter.name} is {shape_text(b)}")


def _decayed(op: Any, x: Any, p: Any, decay: float) -> Any:
    return op.Add(x, op.Mul(p, op.scalar(decay, p))) if decay else x


def _blended(op: Any, old: Any, new: Any, weight: float) -> Any:
    """weight old + (1 - weight) new."""
    return op.Add(op.Mul(old, op.scalar(weight, old)), op.Mul(new, op.scalar(1 - weight, old)))


def _towards(op: Any, old: Any, new: Any, part: float) -> Any:
    """old + part (new - old)."""
    return op.Add(old, op.Mul(op.Sub(new, old), op.scalar(part, old)))


def _begun(op: Any, beta: float, step: Any, like: Any) -> Any:
    """1 - beta^step, in float64 before it is rounded: beta2^step is close to 1 for long."""
    wide = op.Cast(step, to="float64")
    power = op.Pow(op.scalar(beta, wide), wide)
    return op.CastLike(op.Sub(op.scalar(1.0, wide), power), like)


def _operands(
    op: Any, rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], step: int = 1, scale: float | None = None
) -> tuple[Any, ...]:
    """Operands of a sample. Slots are as they may be: squares above those of the means."""
    tensors = [floats(rng, shape) for shape in (*shapes, *shapes)]
    for name in op.slots:
        is_square = "sq" in name or name == "sum"
        tensors += [floats(rng, shape, *((1.0, 2.0) if is_square else (-0.9, 0.9))) for shape in shapes]
    return (scalar(0.1), scalar(step, "int64"), None if scale is None else scalar(scale), *tensors)
