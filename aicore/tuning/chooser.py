"""The choice that was measured, for the selector: the same store gives the same kernels."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from aicore.config import Precision
from aicore.ir import Op, TensorType
from aicore.kernels import Candidate
from aicore.runtime import Device
from aicore.tuning.problems import device_text, problem_text, source_digest
from aicore.tuning.records import Record
from aicore.tuning.store import TuningStore

_CHANGED = "kernels have changed since they were measured"


class Chooser:
    """Looks up what was measured for one device; a `Choose` of the selector.

    A record answers only while all that it compared is still what can be chosen from: the same candidates with the
    same code. Otherwise it is a miss.
    """

    def __init__(self, store: TuningStore, device: Device, precision: Precision = "float32") -> None:
        self.store = store
        self.precision: Precision = precision
        self._device = device
        self._device_text = ""
        self._mine: dict[str, Record] = {}
        self._found: dict[tuple[Op, tuple[TensorType | None, ...], frozenset[int]], Record | str] = {}
        self.hits = 0
        self.misses: Counter[str] = Counter()

    @property
    def device_text(self) -> str:
        """Facts that times depend on; the number of threads among them, so ask where it is set."""
        if not self._device_text:
            self._device_text = device_text(self._device)
        return self._device_text

    def known(self, problem: str) -> Record | None:
        """The record of this device for a problem, without counting."""
        if problem in self._mine:
            return self._mine[problem]
        found = "" if self.store.unusable else self.store.peek(self.device_text, problem)
        return found if isinstance(found, Record) else None

    def add(self, problem: str, record: Record) -> None:
        """Use a record of this process before any that the store has."""
        self._mine[problem] = record
        self._found.clear()

    def __call__(
        self, op: Op, types: Sequence[TensorType | None], constant: Collection[int], candidates: Sequence[Candidate]
    ) -> tuple[str, Mapping[str, float]] | None:
        """The name of the candidate to take, and seconds by name; None where nothing was measured, or is to choose."""
        if len(candidates) < 2:
            return None
        asked = op, tuple(types), frozenset(constant)
        found = self._found.get(asked)
        if found is None:
            found = self._record(op, types, constant)
            if isinstance(found, Record):
                changed = found.considered != considered(candidates)
                found = self._found[asked] = _CHANGED if changed else found
        if isinstance(found, str):
            self.misses[found] += 1
            return None
        self.hits += 1
        return found.chosen, found.seconds

    def _record(self, op: Op, types: Sequence[TensorType | None], constant: Collection[int]) -> Record | str:
        if not self._mine and self.store.unusable:
            return self.store.unusable  # the text of the problem would be for nothing
        problem = problem_text(op, types, constant, self.precision)
        if problem is None:
            return "an attribute that cannot be written down"
        if problem in self._mine:
            return self._mine[problem]
        return self.store.find(self.device_text, problem)


def considered(candidates: Sequence[Candidate]) -> str:
    """Digest of the candidates, in whatever order, and of the code behind each."""
    return _digest(frozenset((candidate.name, source_digest(candidate.kernel)) for candidate in candidates))


@lru_cache(maxsize=1024)
def _digest(candidates: frozenset[tuple[str, str]]) -> str:
    """Networks repeat their ops, and so their candidates."""
    text = "\n".join(sorted(f"{name} {source}" for name, source in candidates))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
