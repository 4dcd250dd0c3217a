"""What all observers share: which numbers count, one range for a tensor or one for each channel, and their JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from aicore_int8_quant.affine import ACTIVATION, Array, Format, QParams, qparams_of
from aicore_int8_quant.errors import CalibrationError

NonFinite: TypeAlias = Literal["raise", "ignore"]


class Observer(ABC):
    """Sees the batches of one tensor and says which range of numbers its codes should cover.

    Results do not depend on how the data is cut into batches or on their order, unless the class says so; a batch may
    have any shape, as long as the number of channels stays.

    tensor: its name, for messages.
    axis: the axis of the channels, each with a range of its own; None for one range.
    non_finite: NaN and infinity `raise` CalibrationError, or are left out and counted (`ignore`).
    """

    kind: ClassVar[str] = ""

    def __init__(self, tensor: str = "tensor", axis: int | None = None, non_finite: NonFinite = "raise") -> None:
        if non_finite not in ("raise", "ignore"):
            raise CalibrationError(f"non_finite is {non_finite!r}; choose raise or ignore")
        self.tensor, self.axis, self.non_finite = tensor, axis, non_finite
        self.ignored = 0
        self.channels: int | None = None if axis is not None else 1

    def update(self, array: Array) -> None:
        """See one more batch. Raises CalibrationError naming the tensor for NaN, infinity or a missing channel."""
        rows = self._rows(np.asarray(array))
        finite = np.isfinite(rows)
        if finite.all():
            self._see(rows, None)
            return
        bad = rows[~finite]
        if self.non_finite == "raise":
            what = "NaN" if np.isnan(bad).any() else "infinity"
            raise CalibrationError(
                f"{self.tensor}: {bad.size} of {rows.size} numbers are not finite ({what}); mend the data, exclude the "
                "nodes around it, or choose non_finite='ignore', which leaves them out of the range"
            )
        self.ignored += bad.size
        self._see(rows, finite)

    def merge(self, other: Self) -> None:
        """See all that `other` has seen. Raises CalibrationError for an observer of another kind or other channels."""
        if type(other) is not type(self) or self.options() != other.options():
            raise CalibrationError(f"{self.tensor}: cannot merge {other.describe()} into {self.describe()}")
        if other.channels is not None:
            self._fix_channels(other.channels)
            self.ignored += other.ignored
            self._merge(other)

    def joined(self, exponents: Array) -> Self:
        """One observer of the whole tensor, as if channel c had been 2 ** exponents[c] times as large; exact.

        exponents: int64, one for each channel. This observer stays as it is.
        """
        options = {**self.options(), "axis": None}
        total = type(self)(self.tensor, **options)
        total.ignored = self.ignored
        if self.channels is not None:
            self._join_into(total, exponents)
        return total

    def qparams(self, to: Format | None = None) -> QParams:
        """Scale and zero point of what was seen; asymmetric int8 by default.

        Raises CalibrationError when nothing was seen.
        """
        wanted = to or Format(ACTIVATION.dtype, ACTIVATION.symmetric, self.axis)
        low, high = self.range(wanted)
        if self.axis is None:
            low, high = low.reshape(()), high.reshape(())
        return qparams_of(low, high, wanted)

    def range(self, to: Format = ACTIVATION) -> tuple[Array, Array]:
        """The range to cover, of shape (channels,), in float64.

        Raises CalibrationError when nothing was seen.
        """
        low, _ = self.extremes()
        if self.channels is None or not np.isfinite(low).all():
            raise CalibrationError(f"{self.tensor}: nothing was observed")
        return self._range(to)

    def describe(self) -> str:
        """Kind and options, for messages."""
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.options().items())})"

    def options(self) -> dict[str, Any]:
        """The arguments that make an observer of the same kind."""
        return {"axis": self.axis, "non_finite": self.non_finite}

    def to_json(self) -> dict[str, Any]:
        """All of its state, as plain data."""
        return {
            "kind": self.kind,
            "tensor": self.tensor,
            "options": self.options(),
            "ignored": self.ignored,
            "channels": self.channels,
            "state": self._state(),
        }

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        made = cls(data["tensor"], **data["options"])
        made.ignored, made.channels = data["ignored"], data["channels"]
        made._set_state(data["state"])
        return made

    @abstractmethod
    def extremes(self) -> tuple[Array, Array]:
        """The smallest and the largest number that was seen, of shape (channels,); infinities where none was."""

    @abstractmethod
    def _see(self, rows: Array, finite: Array | None) -> None:
        """One row for each channel, in float32 or float64; `finite` says which numbers count, None that all do."""

    @abstractmethod
    def _merge(self, other: Self) -> None: ...

    @abstractmethod
    def _join_into(self, total: Self, exponents: Array) -> None: ...

    @abstractmethod
    def _range(self, to: Format) -> tuple[Array, Array]: ...

    @abstractmethod
    def _state(self) -> Any: ...

    @abstractmethod
    def _set_state(self, state: Any) -> None: ...

    def _rows(self, array: Array) -> Array:
        x = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
        if self.axis is None:
            return x.reshape(1, -1)
        if not -x.ndim <= self.axis < x.ndim:
            raise CalibrationError(f"{self.tensor}: a batch of shape {x.shape} has no axis {self.axis}")
        moved = np.moveaxis(x, self.axis, 0)
        self._fix_channels(moved.shape[0])
        return moved.reshape(moved.shape[0], -1)

    def _fix_channels(self, count: int) -> None:
        if self.channels not in (None, count):
            raise CalibrationError(f"{self.tensor}: {count} channels, where {self.channels} were seen before")
        self.channels = count


def batch_extremes(rows: Array, finite: Array | None) -> tuple[Array, Array]:
    """Smallest and largest number of each row, in float64; infinities of a row without any."""
    low, high, where = np.float64(np.inf), np.float64(-np.inf), True if finite is None else finite
    least, most = rows.min(1, initial=low, where=where), rows.max(1, initial=high, where=where)
    return least.astype(np.float64) + 0.0, most.astype(np.float64) + 0.0  # -0 becomes 0, whichever came first
