"""What measuring one problem on one device found, as it is kept: checked on the way in, whoever wrote it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from aicore.records import dataclass

LARGEST = 1 << 16
"""Characters of the longest record that is read; one of 100 candidates needs a tenth of it."""
_LONGEST_TIME = 3600.0
_MOST_CANDIDATES = 1000


class RecordError(ValueError):
    """Why a text is no record."""


@dataclass(frozen=True)
class Record:
    """Seconds by candidate, and which of them is to be used.

    A candidate is the name of a kernel with its settings, such as `conv_im2col[rows=8]`.

    chosen: the candidate to use; the default, unless another one was faster beyond the noise.
    default: what would have been taken without measuring.
    seconds: medians, by candidate that was timed.
    gain: median of the chosen one's time over the default's, in paired runs, and the ends of its interval.
    considered: digest of all that could have been chosen, timed or not, and of the code behind it.
    refused: candidates whose numbers were wrong, or which raised, each with the reason.
    time: when, in UTC.
    """

    chosen: str
    default: str
    seconds: Mapping[str, float]
    gain: tuple[float, float, float]
    considered: str
    refused: Mapping[str, str] = field(default_factory=dict)
    time: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen,
            "default": self.default,
            "seconds": dict(self.seconds),
            "gain": list(self.gain),
            "considered": self.considered,
            "refused": dict(self.refused),
            "time": self.time,
        }

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """Raises RecordError for anything but what `to_json` gives, such as a time that is negative or no number."""
        if not isinstance(data, dict) or sorted(data) != _FIELDS:
            raise RecordError(f"it has no fields {', '.join(_FIELDS)}")
        record = cls(
            chosen=_text(data["chosen"]),
            default=_text(data["default"]),
            seconds={name: _number(x, _LONGEST_TIME) for name, x in _table(data["seconds"])},
            gain=_interval(data["gain"]),
            considered=_text(data["considered"]),
            refused={name: _text(x) for name, x in _table(data["refused"])},
            time=_text(data["time"]),
        )
        for name in (record.chosen, record.default):
            if name not in record.seconds or name in record.refused:
                raise RecordError(f"{name!r} was not timed, or not accepted")
        return record

    @classmethod
    def parse(cls, text: Any) -> Record:
        """Of the text that a store holds. Raises RecordError."""
        if not isinstance(text, str) or len(text) > LARGEST:
            raise RecordError("it is no text, or too long a one")
        try:
            return cls.from_json(json.loads(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise RecordError(f"it is no JSON: {error}") from error

    def text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)


_FIELDS = sorted(["chosen", "default", "seconds", "gain", "considered", "refused", "time"])


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LARGEST:
        raise RecordError(f"{value!r:.40} is no text")
    return value


def _number(value: Any, largest: float) -> float:
    """A positive number up to `largest`; bools are none, and neither are infinity and NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= largest:
        raise RecordError(f"{value!r:.40} is no number between 0 and {largest:g}")
    return float(value)


def _table(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or len(value) > _MOST_CANDIDATES:
        raise RecordError(f"{value!r:.40} is no table of candidates")
    return [(_text(name), item) for name, item in value.items()]


def _interval(value: Any) -> tuple[float, float, float]:
    if not isinstance(value, list) or len(value) != 3:
        raise RecordError(f"{value!r:.40} is no median with two ends")
    middle, low, high = (_number(x, math.inf) for x in value)
    if not low <= middle <= high < math.inf:
        raise RecordError(f"{value!r:.40} is no median between two ends")
    return middle, low, high
