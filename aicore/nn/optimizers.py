"""Optimisers: frozen configurations that build one op for the update of all parameters.

Defaults are those of torch.optim, and so are the formulas: see the ops in aicore/ops/optimizers.py. What is written
`lr` there is `learning_rate` here, a number or a schedule. Keras' names of clipping: `clipvalue` bounds each element,
`clipnorm` the norm of each gradient, `global_clipnorm` that of all together; in that order if several are given.
weight_decay: none for parameters whose name matches one of `no_decay`, patterns as of a shell: `("*.bias", "*norm*")`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aicore.errors import ConfigError
from aicore.ir import Builder, Op, TensorType, Value, as_tuple
from aicore.nn.clipping import clip_by_norm, clip_by_value, scale_by_global_norm
from aicore.nn.schedules import Schedule, schedule
from aicore.ops.optimizers import AdagradUpdate, AdamUpdate, LambUpdate, LionUpdate, RMSpropUpdate, SGDUpdate

Slots: TypeAlias = "Mapping[str, Value]"
"""What an optimiser keeps of one parameter, by name."""


def _are_betas(found: object) -> bool:
    return isinstance(found, tuple | list) and len(found) == 2 and all(0 <= beta < 1 for beta in found)


@dataclass(frozen=True)
class Optimizer:
    """Base of all. Hyperparameters beside the learning rate are constants of the graph.

    Raises ConfigError for numbers outside of their range.
    """

    learning_rate: float | Schedule = 1e-3
    weight_decay: float = 0.0
    no_decay: tuple[str, ...] = ()
    clipvalue: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.learning_rate, Schedule):
            self.ensure(schedule(self.learning_rate).value(1) >= 0, f"learning_rate {self.learning_rate} is negative")
        self.ensure(0 <= self.weight_decay < math.inf, f"weight_decay {self.weight_decay} is no finite number from 0")
        self.ensure(not isinstance(self.no_decay, str), f"no_decay={self.no_decay!r} is one text, wants several")
        for name in ("clipvalue", "clipnorm", "global_clipnorm"):
            limit = getattr(self, name)
            self.ensure(limit is None or 0 < limit < math.inf, f"{name} {limit} is not above 0, or not finite")

    def ensure(self, condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(f"{type(self).__name__}: {message}")

    def rate(self, op: Builder, step: Value) -> Value | None:
        """The learning rate of a schedule at a step, an int64 scalar; None where it is a number, which may be fed."""
        return self.learning_rate.build(op, step) if isinstance(self.learning_rate, Schedule) else None

    @property
    def initial_rate(self) -> float:
        """The learning rate of the first update."""
        return schedule(self.learning_rate).value(1)

    def slots(self, parameter: TensorType) -> dict[str, float]:
        """Names of what is kept of a parameter, each a tensor of its type, with the number that fills it at first."""
        return dict.fromkeys(self._op((parameter.dtype,)).slots, 0.0)

    def clipped(self, op: Builder, gradients: Sequence[Value], scale: Value | None) -> tuple[list[Value], Value | None]:
        """(gradients, scale) after clipping; the scale is what the gradients are still to be multiplied by."""
        found = list(gradients)
        if scale is not None and (self.clipvalue is not None or self.clipnorm is not None):
            found, scale = [op.Mul(g, op.CastLike(scale, g)) for g in found], None
        if self.clipvalue is not None:
            found = clip_by_value(op, found, self.clipvalue)
        if self.clipnorm is not None:
            found = clip_by_norm(op, found, self.clipnorm)
        if self.global_clipnorm is not None:
            scale = scale_by_global_norm(op, found, self.global_clipnorm, scale)
        return found, scale

    def build(
        self,
        op: Builder,
        learning_rate: Value,
        step: Value,
        scale: Value | None,
        parameters: Sequence[Value],
        gradients: Sequence[Value],
        slots: Sequence[Slots],
    ) -> tuple[list[Value], list[dict[str, Value]]]:
        """Clip and update: returns the new parameters, and the new slots of each.

        learning_rate: scalar of float32. step: int64 scalar, 1 at the first update. scale: scalar that gradients are
        multiplied by, or None. slots: of each parameter, by the names that `slots` gives.
        """
        return self.updated(op, learning_rate, step, parameters, self.clipped(op, gradients, scale), slots)

    def updated(
        self,
        op: Builder,
        learning_rate: Value,
        step: Value,
        parameters: Sequence[Value],
        clipped: tuple[Sequence[Value], Value | None],
        slots: Sequence[Slots],
    ) -> tuple[list[Value], list[dict[str, Value]]]:
        """As `build`, with what `clipped` gave. Parameters of one type share an op."""
        gradients, scale = clipped
        new: list[Any] = [None] * len(parameters)
        kept: list[Any] = [None] * len(parameters)
        by_dtype: dict[str, list[int]] = {}
        for i, parameter in enumerate(parameters):
            by_dtype.setdefault(parameter.dtype, []).append(i)
        for members in by_dtype.values():
            update = self._op([parameters[i].name for i in members])
            operands = [*(parameters[i] for i in members), *(gradients[i] for i in members)]
            operands += [slots[i][name] for name in update.slots for i in members]
            results = as_tuple(op.apply(update, learning_rate, step, scale, *operands))
            for i, own in zip(members, _by_tensor(results, len(members)), strict=True):
                new[i], kept[i] = own[0], dict(zip(update.slots, own[1:], strict=True))
        return new, kept

    def _op(self, names: Sequence[str]) -> Any:
        """The op that updates parameters of these names."""
        decays = tuple(not any(fnmatch.fnmatchcase(name, one) for one in self.no_decay) for name in names)
        fields = {"count": len(names), "weight_decay": float(self.weight_decay)}
        return self._update(**fields, decays=() if all(decays) or not self.weight_decay else decays)

    def _update(self, **fields: Any) -> Op:
        raise NotImplementedError(f"{type(self).__name__} does not say which op it is")


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, which may be Nesterov's."""

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(self.momentum >= 0, f"momentum {self.momentum} is negative")
        self.ensure(self.momentum > 0 or not self.nesterov, "nesterov needs a momentum")

    def _update(self, **fields: Any) -> Op:
        return SGDUpdate(momentum=float(self.momentum), nesterov=self.nesterov, **fields)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Divides by a running root of the mean square. alpha: called rho in Keras."""

    learning_rate: float | Schedule = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(0 <= self.alpha < 1, f"alpha {self.alpha} is not from 0 to below 1")
        self.ensure(self.eps >= 0 and self.momentum >= 0, "eps or momentum is negative")

    def _update(self, **fields: Any) -> Op:
        alpha, eps, momentum = float(self.alpha), float(self.eps), float(self.momentum)
        return RMSpropUpdate(alpha=alpha, eps=eps, momentum=momentum, centered=self.centered, **fields)


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Divides by the root of the sum of squares since the beginning."""

    learning_rate: float | Schedule = 1e-2
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        least = min(self.lr_decay, self.initial_accumulator_value, self.eps)
        self.ensure(least >= 0, "lr_decay, initial_accumulator_value or eps is negative")

    def slots(self, parameter: TensorType) -> dict[str, float]:
        return {"sum": float(self.initial_accumulator_value)}

    def _update(self, **fields: Any) -> Op:
        return AdagradUpdate(lr_decay=float(self.lr_decay), eps=float(self.eps), **fields)


@dataclass(frozen=True)
class _Moments(Optimizer):
    """What has a mean of gradients and one of their squares."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(_are_betas(self.betas), f"betas {self.betas} are not two numbers from 0 to below 1")
        self.ensure(self.eps >= 0, f"eps {self.eps} is negative")

    def _numbers(self) -> dict[str, Any]:
        beta1, beta2 = self.betas
        return {"beta1": float(beta1), "beta2": float(beta2), "eps": float(self.eps)}


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam; AMSGrad with `amsgrad`. Its weight decay is added to the gradient: see AdamW."""

    amsgrad: bool = False

    def _update(self, **fields: Any) -> Op:
        return AdamUpdate(amsgrad=self.amsgrad, **self._numbers(), **fields)


@dataclass(frozen=True)
class AdamW(_Moments):
    """Adam whose weight decay is taken from the parameter itself."""

    weight_decay: float = 1e-2
    amsgrad: bool = False

    def _update(self, **fields: Any) -> Op:
        return AdamUpdate(amsgrad=self.amsgrad, decoupled=True, **self._numbers(), **fields)


@dataclass(frozen=True)
class LAMB(_Moments):
    """Adam's direction, with a step as long as the parameter asks for: for large batches."""

    eps: float = 1e-6

    def _update(self, **fields: Any) -> Op:
        return LambUpdate(**self._numbers(), **fields)


@dataclass(frozen=True)
class Lion(Optimizer):
    """Steps by the sign of a running mean. It wants a lower learning rate and a higher weight decay than Adam."""

    learning_rate: float | Schedule = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(_are_betas(self.betas), f"betas {self.betas} are not two numbers from 0 to below 1")

    def _update(self, **fields: Any) -> Op:
        beta1, beta2 = self.betas
        return LionUpdate(beta1=float(beta1), beta2=float(beta2), **fields)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "nesterov": SGD(momentum=0.9, nesterov=True),
    "rmsprop": RMSprop(),
    "adagrad": Adagrad(),
    "adam": Adam(),
    "amsgrad": Adam(amsgrad=True),
    "adamw": AdamW(),
    "lamb": LAMB(),
    "lion": Lion(),
}
"""Optimisers by name, with default settings; capitals do not matter."""


def optimizer(found: Optimizer | str) -> Optimizer:
    """The optimiser of a name, or itself. Raises ConfigError for a name that there is not."""
    if isinstance(found, Optimizer):
        return found
    if not isinstance(found, str) or found.lower() not in OPTIMIZERS:
        raise ConfigError(f"optimizer {found!r} is none of {', '.join(OPTIMIZERS)}, and no Optimizer")
    return OPTIMIZERS[found.lower()]


def _by_tensor(results: Sequence[Value], count: int) -> list[Sequence[Value]]:
    return [results[i::count] for i in range(count)]
