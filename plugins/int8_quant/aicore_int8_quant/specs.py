"""Where a tensor's scale and zero point come from, and which one wins when tensors share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from aicore.ir import Value
from aicore_int8_quant.affine import ACTIVATION, Format, QParams
from aicore_int8_quant.errors import CalibrationError, QuantizationError
from aicore_int8_quant.observers import Observer


@dataclass(frozen=True)
class Plain:
    """From what was observed of the tensor itself."""

    to: Format = ACTIVATION


@dataclass(frozen=True)
class Fixed:
    """Known beforehand, such as the range of a sigmoid."""

    params: QParams


@dataclass(frozen=True)
class Shared:
    """Those of other tensors: what only moves numbers, or chooses among them, changes no code."""

    others: tuple[Value, ...]


@dataclass(frozen=True)
class Derived:
    """int32 with the product of the scales of two tensors and zero point 0: the bias of a product."""

    left: Value
    right: Value


QSpec: TypeAlias = Plain | Fixed | Shared | Derived


def fixed_range(low: float, high: float) -> Fixed:
    """int8 codes for numbers from low to just below high, which is the case of sigmoid, tanh and softmax.

    The scale is a power of two when the range is, so that codes are exact.
    """
    scale = np.float32((high - low) / 256)
    return Fixed(QParams(np.asarray(scale), np.asarray(np.int8(round(-128 - low / float(scale))))))


def settle(specs: Mapping[Value, QSpec]) -> tuple[dict[Value, QSpec], dict[Value, str]]:
    """The specs with every Shared one that cannot be kept made Plain, and why, by tensor.

    Tensors that share become one group, whose range covers what is observed of all of them. A fixed range joins no
    other fixed one, and nothing that is observed: a tensor that would tie them together gets a range of its own.
    Raises QuantizationError for a tensor that is to share with one that has no spec.
    """
    groups = _Groups(specs)
    kept = {value: Plain() if value in groups.broken else spec for value, spec in specs.items()}
    return kept, groups.broken


def resolve(specs: Mapping[Value, QSpec], observers: Mapping[Value, Observer]) -> dict[Value, QParams]:
    """Scale and zero point of each tensor; Derived ones last, from those of their two.

    specs: as `settle` returns them. observers: of the Plain tensors.
    Raises CalibrationError for a Plain tensor of which nothing was observed.
    """
    params: dict[Value, QParams] = {}
    for members in _Groups(specs).sets():
        params.update(dict.fromkeys(members, _params_of(members, specs, observers)))
    for value, spec in specs.items():
        if isinstance(spec, Derived):
            params[value] = bias_params(params[spec.left], params[spec.right])
    return params


def bias_params(left: QParams, right: QParams) -> QParams:
    """int32 with the product of two scales, rounded to float32 once."""
    product = left.scale.astype(np.float64) * right.scale.astype(np.float64)
    scale = np.asarray(product).astype(np.float32)
    return QParams(scale, np.zeros(scale.shape, np.int32), None if scale.ndim == 0 else 0)


class _Groups:
    """Union-find over tensors that share. broken: those that could not, and why."""

    def __init__(self, specs: Mapping[Value, QSpec]) -> None:
        self.broken: dict[Value, str] = {}
        self._parent: dict[Value, Value] = {v: v for v, spec in specs.items() if not isinstance(spec, Derived)}
        self._fixed = {v: spec.params for v, spec in specs.items() if isinstance(spec, Fixed)}
        self._observed = {v for v, spec in specs.items() if isinstance(spec, Plain)}
        for value, spec in specs.items():
            if isinstance(spec, Shared):
                self._share(value, spec.others)

    def sets(self) -> list[list[Value]]:
        """The groups, each in the order of the specs."""
        found: dict[Value, list[Value]] = {}
        for value in self._parent:
            found.setdefault(self._root(value), []).append(value)
        return list(found.values())

    def _share(self, value: Value, others: tuple[Value, ...]) -> None:
        """All of them become one group, or none does."""
        unknown = next((other for other in others if other not in self._parent), None)
        if unknown is not None:
            raise QuantizationError(f"%{value.name} is to share the scale of %{unknown.name}, which has none")
        roots = list(dict.fromkeys(self._root(v) for v in (value, *others)))
        fixed = [self._fixed[root] for root in roots if root in self._fixed]
        if fixed and not all(fixed[0].same_as(other) for other in fixed):
            self._break(value, others, "have different fixed ranges")
        elif fixed and any(root in self._observed for root in roots):
            self._break(value, others, "have fixed and observed ranges")
        else:
            self._join(roots, fixed)

    def _join(self, roots: list[Value], fixed: list[QParams]) -> None:
        first = roots[0]
        for root in roots[1:]:
            self._parent[root] = first
        if fixed:
            self._fixed[first] = fixed[0]
        if not self._observed.isdisjoint(roots):
            self._observed.add(first)

    def _break(self, value: Value, others: tuple[Value, ...], what: str) -> None:
        names = ", ".join(f"%{other.name}" for other in others)
        self.broken[value] = f"%{value.name} has a scale of its own: {names} {what}"
        self._observed.add(self._root(value))

    def _root(self, value: Value) -> Value:
        while self._parent[value] is not value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value


def _params_of(members: list[Value], specs: Mapping[Value, QSpec], observers: Mapping[Value, Observer]) -> QParams:
    fixed = [spec.params for value in members if isinstance(spec := specs[value], Fixed)]
    if fixed:
        return fixed[0]
    plain = [(value, spec.to) for value in members if isinstance(spec := specs[value], Plain)]
    seen = [observers[value] for value, _ in plain if value in observers]
    if not seen:
        raise CalibrationError(f"%{members[0].name}: nothing was observed of it, nor of what it shares a scale with")
    return merged(seen).qparams(plain[0][1])


def merged(observers: Sequence[Observer]) -> Observer:
    """One observer that has seen what all of these have; they stay as they are."""
    if len(observers) == 1:
        return observers[0]
    first = observers[0]
    total = type(first)(first.tensor, **first.options())
    for observer in observers:
        total.merge(observer)
    return total
