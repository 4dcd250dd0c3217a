"""Learning rates that change with the step. Frozen configurations; the graph computes them in float64.

`step` counts updates and is 1 at the first one; t = step - 1 is how many were made before, as schedules of Keras and
PyTorch count. All lengths are in updates: for one that is known in epochs, multiply by the updates of an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.errors import ConfigError
from aicore.ir import Builder, Value


@dataclass(frozen=True)
class Schedule:
    """Base of all: a subclass says in `at` how the rate depends on t."""

    def at(self, t: Any) -> Any:
        """The rate after t updates: by numbers for a number, and as part of a graph for a `_Term` of one."""
        raise NotImplementedError

    def build(self, op: Builder, step: Value) -> Value:
        """The rate at a step, an int64 scalar; float32, of rank 0."""
        t = _Term(op, op.Cast(step, to="float64")) - 1.0
        rate = self.at(t)
        if not isinstance(rate, _Term):
            return op.scalar(rate, op.Cast(step, to="float32"))
        return op.Cast(rate.value, to="float32")  # type: ignore[no-any-return]

    def value(self, step: int) -> float:
        """The rate at a step, in float64."""
        return float(self.at(float(step - 1)))


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate always."""

    learning_rate: float

    def at(self, t: Any) -> Any:
        return self.learning_rate


@dataclass(frozen=True)
class StepDecay(Schedule):
    """`gamma` times the rate after each `step_size` updates: PyTorch's StepLR."""

    learning_rate: float
    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, "step_size")

    def at(self, t: Any) -> Any:
        return self.learning_rate * _power(self.gamma, _floor(t / self.step_size))


@dataclass(frozen=True)
class MultiStepDecay(Schedule):
    """`gamma` times the rate from each of the milestones on: PyTorch's MultiStepLR."""

    learning_rate: float
    milestones: tuple[int, ...]
    gamma: float = 0.1

    def at(self, t: Any) -> Any:
        rate: Any = self.learning_rate
        for milestone in sorted(self.milestones):
            rate = _where(t, milestone, rate, rate * self.gamma)
        return rate


@dataclass(frozen=True)
class PiecewiseConstantDecay(Schedule):
    """values[0] up to t = boundaries[0], that included, then values[1] up to boundaries[1], and so on. As in Keras."""

    boundaries: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        fits = len(self.values) == len(self.boundaries) + 1
        _ensure(
            fits, f"{len(self.boundaries)} boundaries want {len(self.boundaries) + 1} values, not {len(self.values)}"
        )
        _ensure(sorted(self.boundaries) == list(self.boundaries), f"boundaries {self.boundaries} do not rise")

    def at(self, t: Any) -> Any:
        rate: Any = self.values[0]
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            rate = _where(t, boundary + 1, rate, value)
        return rate


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """rate decay_rate^(t / decay_steps); with `staircase` the exponent is rounded down. As in Keras.

    PyTorch's ExponentialLR is that with decay_steps=1.
    """

    learning_rate: float
    decay_rate: float
    decay_steps: int = 1
    staircase: bool = False

    def __post_init__(self) -> None:
        _positive(self, "decay_rate", "decay_steps")

    def at(self, t: Any) -> Any:
        part = t / self.decay_steps
        return self.learning_rate * _power(self.decay_rate, _floor(part) if self.staircase else part)


@dataclass(frozen=True)
class InverseTimeDecay(Schedule):
    """rate / (1 + decay_rate t / decay_steps); with `staircase` t / decay_steps is rounded down. As in Keras."""

    learning_rate: float
    decay_rate: float
    decay_steps: int = 1
    staircase: bool = False

    def __post_init__(self) -> None:
        _positive(self, "decay_steps")

    def at(self, t: Any) -> Any:
        part = t / self.decay_steps
        return self.learning_rate / ((_floor(part) if self.staircase else part) * self.decay_rate + 1.0)


@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """(rate - end) (1 - t / decay_steps)^power + end until t = decay_steps, and `end_learning_rate` from then on.

    As in Keras without `cycle`; PyTorch's PolynomialLR has an end of 0. Power 1 is linear.
    """

    learning_rate: float
    decay_steps: int
    end_learning_rate: float = 0.0
    power: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "decay_steps", "power")

    def at(self, t: Any) -> Any:
        left = 1.0 - _least(t / self.decay_steps, 1.0)
        return (self.learning_rate - self.end_learning_rate) * _power(left, self.power) + self.end_learning_rate


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """Half a cosine from the rate down to alpha times the rate at t = decay_steps, which it keeps.

    As in Keras; PyTorch's CosineAnnealingLR up to T_max, with eta_min = alpha rate. Source: Loshchilov and Hutter 2017.
    """

    learning_rate: float
    decay_steps: int
    alpha: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "decay_steps")

    def at(self, t: Any) -> Any:
        return self.learning_rate * _half_cosine(_least(t / self.decay_steps, 1.0), 1.0, self.alpha)


@dataclass(frozen=True)
class CosineDecayRestarts(Schedule):
    """CosineDecay over and over: each run is t_mul times as long as the one before and begins at m_mul times its rate.

    As in Keras; PyTorch's CosineAnnealingWarmRestarts has m_mul = 1. Source: Loshchilov and Hutter 2017.
    """

    learning_rate: float
    first_decay_steps: int
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "first_decay_steps")
        _ensure(self.t_mul >= 1, f"t_mul {self.t_mul} is below 1")

    def at(self, t: Any) -> Any:
        done = t / self.first_decay_steps
        if self.t_mul == 1:
            run = _floor(done)
            part = done - run
        else:
            run = _floor(_log(done * (self.t_mul - 1.0) + 1.0) / math.log(self.t_mul) + _ROUNDING)
            length = _power(self.t_mul, run)
            part = (done - (length - 1.0) / (self.t_mul - 1.0)) / length
        top = _power(self.m_mul, run) * (1.0 - self.alpha) + self.alpha
        return self.learning_rate * _half_cosine(_most(part, 0.0), top, self.alpha)


@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """From `start` to the first rate of `then` in a straight line, which is reached at t = steps; then `then` begins.

    then: another schedule, or a rate that is kept.
    """

    then: Schedule | float
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "steps")

    def at(self, t: Any) -> Any:
        then = schedule(self.then)
        line = (then.value(1) - self.start) * (t / self.steps) + self.start
        return _where(t, self.steps, line, then.at(_most(t - float(self.steps), 0.0)))


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up from max_learning_rate / div_factor, then down to 1 / final_div_factor of where it began.

    total_steps: updates of the cycle; the last rate is kept. pct_start: the part of the cycle in which it rises.
    Both ways are half a cosine. The highest rate is reached at t = pct_start total_steps - 1.
    Source: Smith and Topin 2019; PyTorch's OneCycleLR with anneal_strategy "cos" and two phases.
    """

    max_learning_rate: float
    total_steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def __post_init__(self) -> None:
        _positive(self, "div_factor", "final_div_factor")
        _ensure(0 < self.pct_start < 1, f"pct_start {self.pct_start} is not between 0 and 1")
        _ensure(self.pct_start * self.total_steps > 1, f"of {self.total_steps} steps, pct_start leaves none to rise in")

    def at(self, t: Any) -> Any:
        first = self.max_learning_rate / self.div_factor
        turn, end = self.pct_start * self.total_steps - 1.0, self.total_steps - 1.0
        up = _half_cosine(_least(t / turn, 1.0), first, self.max_learning_rate)
        fallen = _least(_most((t - turn) / (end - turn), 0.0), 1.0)
        return _where(t, turn, up, _half_cosine(fallen, self.max_learning_rate, first / self.final_div_factor))


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """The rate times step / warmup_steps until it is reached, then times sqrt(warmup_steps / step). As in fairseq."""

    learning_rate: float
    warmup_steps: int = 1

    def __post_init__(self) -> None:
        _positive(self, "warmup_steps")

    def at(self, t: Any) -> Any:
        part = (t + 1.0) / self.warmup_steps
        return self.learning_rate * _least(part, _power(part, -0.5))


@dataclass(frozen=True)
class Noam(Schedule):
    """factor d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5). Source: Vaswani et al. 2017."""

    d_model: int
    warmup_steps: int = 4000
    factor: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "d_model", "warmup_steps")

    def at(self, t: Any) -> Any:
        step = t + 1.0
        return self.factor * self.d_model**-0.5 * _least(_power(step, -0.5), step * self.warmup_steps**-1.5)


def schedule(found: Schedule | float) -> Schedule:
    """The schedule itself, or one that keeps a rate. Raises ConfigError for anything else."""
    if isinstance(found, Schedule):
        return found
    if isinstance(found, bool) or not isinstance(found, int | float | np.number) or not abs(found) <= _LARGEST:
        raise ConfigError(f"{found!r} is no learning rate: it wants a finite number or a Schedule")
    return Constant(float(found))


_LARGEST = float(np.finfo(np.float32).max)
"""Rates become float32; NaN is no more below it than infinity."""
_ROUNDING = 1e-12
"""So that the logarithm of a power whose rounding falls below the whole number still counts as that."""


class _Term:
    """A float64 scalar of a graph, with arithmetic: so that a formula is written once for graphs and for numbers."""

    def __init__(self, op: Builder, value: Value) -> None:
        self.op, self.value = op, value

    def call(self, name: str, *others: Any) -> _Term:
        return _Term(self.op, getattr(self.op, name)(self.value, *map(self.lift, others)))

    def lift(self, other: Any) -> Value:
        return other.value if isinstance(other, _Term) else self.op.scalar(float(other), self.value)

    def __add__(self, other: Any) -> _Term:
        return self.call("Add", other)

    def __sub__(self, other: Any) -> _Term:
        return self.call("Sub", other)

    def __mul__(self, other: Any) -> _Term:
        return self.call("Mul", other)

    def __truediv__(self, other: Any) -> _Term:
        return self.call("Div", other)

    def __rsub__(self, other: Any) -> _Term:
        return _Term(self.op, self.lift(other)) - self

    def __rtruediv__(self, other: Any) -> _Term:
        return _Term(self.op, self.lift(other)) / self

    __radd__ = __add__
    __rmul__ = __mul__


def _term_of(*values: Any) -> _Term | None:
    return next((value for value in values if isinstance(value, _Term)), None)


def _floor(x: Any) -> Any:
    return x.call("Floor") if isinstance(x, _Term) else float(math.floor(x))


def _log(x: Any) -> Any:
    return x.call("Log") if isinstance(x, _Term) else math.log(x)


def _cos(x: Any) -> Any:
    return x.call("Cos") if isinstance(x, _Term) else math.cos(x)


def _power(base: Any, exponent: Any) -> Any:
    term = _term_of(base, exponent)
    return base**exponent if term is None else _Term(term.op, term.op.Pow(term.lift(base), term.lift(exponent)))


def _least(x: Any, y: Any) -> Any:
    return x.call("Min", y) if isinstance(x, _Term) else min(x, y)


def _most(x: Any, y: Any) -> Any:
    return x.call("Max", y) if isinstance(x, _Term) else max(x, y)


def _where(t: Any, bound: float, before: Any, after: Any) -> Any:
    """One of two rates: that before t = bound, or that from then on."""
    if not isinstance(t, _Term):
        return before if t < bound else after
    return _Term(t.op, t.op.Where(t.call("Less", bound).value, t.lift(before), t.lift(after)))


def _half_cosine(part: Any, top: Any, bottom: float) -> Any:
    """From `top` to `bottom` as `part` goes from 0 to 1."""
    return bottom + (top - bottom) * 0.5 * (_cos(part * math.pi) + 1.0)


def _ensure(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _positive(found: Any, *names: str) -> None:
    for name in names:
        value = getattr(found, name)
        _ensure(value > 0, f"{type(found).__name__}: {name} {value} is not above 0")
