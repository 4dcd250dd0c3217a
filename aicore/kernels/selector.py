"""The choice among the kernels of an op, with the reason against each that was not taken."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from typing import Protocol, TypeAlias, TypeVar

from aicore.errors import PluginError, UnsupportedError
from aicore.ir import Op, TensorType
from aicore.kernels.kernel import REFERENCE, Kernel, Settings
from aicore.kernels.registry import KernelTable
from aicore.records import dataclass

Problem: TypeAlias = "tuple[Op, tuple[TensorType | None, ...]]"
Answer = TypeVar("Answer")
_MOST_KEPT = 16_384

_log = logging.getLogger("aicore.kernels")


class Choose(Protocol):
    """Looks up what was measured on this very device.

    hits, misses: how often there was an answer, and by reason how often not.
    """

    hits: int
    misses: Counter[str]

    def __call__(
        self, op: Op, types: Sequence[TensorType | None], constant: Collection[int], candidates: Sequence[Candidate]
    ) -> tuple[str, Mapping[str, float]] | None:
        """The name of the candidate to take, and seconds by name; None when nothing was measured.

        constant: indices of operands whose numbers are known. candidates: those that are usable, in no order.
        """


@dataclass(frozen=True)
class Candidate:
    """One kernel, with one choice of its settings, that was considered.

    seconds: tuned or estimated time; None where neither is known or the kernel cannot run the op.
    note: why it cannot run the op, or what its rank rests on.
    """

    kernel: Kernel
    usable: bool
    seconds: float | None = None
    note: str = ""
    settings: Settings = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """`conv_im2col`, or `conv_im2col[block=64]` for a kernel with settings."""
        chosen = ",".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.kernel.name}[{chosen}]" if chosen else self.kernel.name

    def __str__(self) -> str:
        time = "" if self.seconds is None else f" {self.seconds * 1e6:.1f} us"
        return f"{self.name}:{time} {self.note}"


@dataclass(frozen=True)
class Selection:
    """The kernel for one node, and all candidates, best first and unusable ones last."""

    kernel: Kernel
    candidates: tuple[Candidate, ...]

    @property
    def settings(self) -> Settings:
        """What was chosen of what the kernel offers; empty for one that offers nothing."""
        return self.candidates[0].settings

    @property
    def reason(self) -> str:
        """What the choice rests on."""
        return self.candidates[0].note


@dataclass(frozen=True)
class Selector:
    """Chooses a kernel for a node on one kind of device.

    The order: an explicit override, then what was measured to be the fastest, then the lowest estimate, then a kernel
    without one in order of registration, and the reference last. It is taken earlier only if that was measured.

    overrides: variant by name of an op (`Conv`) or of a node, which wins; one that cannot run the node is an error.
    tuned: looks up what was measured.
    rated, offers, reasons: what kernels answered, by op and types; networks repeat their blocks.
    untimed: candidates by kernel.
    """

    table: KernelTable
    device: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    tuned: Choose | None = None
    rated: dict[Problem, tuple[Candidate, ...]] = field(default_factory=dict, repr=False, compare=False)
    offers: dict[Problem, tuple[list[Candidate], list[Candidate]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    reasons: dict[Problem, str | None] = field(default_factory=dict, repr=False, compare=False)
    untimed: dict[Kernel, list[Candidate]] = field(default_factory=dict, repr=False, compare=False)

    def select(self, op: Op, *types: TensorType | None, node: str = "", constant: Collection[int] = ()) -> Selection:
        """The best kernel for the op on operands of these types.

        node: its name, for overrides. constant: indices of operands whose numbers are known.
        Raises UnsupportedError with the reason against each candidate, or when an override cannot run the op.
        """
        variant = self.overrides.get(node) or self.overrides.get(type(op).__name__)
        candidates: Sequence[Candidate]
        if variant is not None:
            candidates = _put_first(self._candidates(op, types), variant, op, self.device)
        else:
            candidates = self._measured(op, types, constant) or self._candidates(op, types)
        if not candidates or not candidates[0].usable:
            raise UnsupportedError(self._refusal(op, candidates))
        return Selection(candidates[0].kernel, tuple(candidates))

    def reason_against(self, op: Op, *types: TensorType | None) -> str | None:
        """Why no kernel runs the op on operands of these types, or None if one does. Dims may be symbolic."""
        problem = op, types
        try:
            return self.reasons[problem]  # a question asked for most nodes, again and again
        except KeyError:
            reason = self._reason_against(op, types)
            _keep(self.reasons, problem, reason)
            return reason

    def _reason_against(self, op: Op, types: tuple[TensorType | None, ...]) -> str | None:
        kernels = self.table.serving(op, self.device)
        if any(kernel.reason_against(op, *types) is None for kernel in kernels):
            return None
        return self._refusal(op, self._candidates(op, types))

    def _measured(
        self, op: Op, types: tuple[TensorType | None, ...], constant: Collection[int]
    ) -> list[Candidate] | None:
        """The candidates as they were measured; no estimate is needed then."""
        if self.tuned is None:
            return None
        usable, refused = self._offers(op, types)
        choice = self.tuned(op, types, constant, usable)
        if choice is None:
            return None
        chosen, seconds = choice
        ranked = sorted(usable, key=lambda candidate: (candidate.name != chosen, seconds.get(candidate.name, math.inf)))
        return [*(_as_timed(candidate, seconds.get(candidate.name)) for candidate in ranked), *refused]

    def _offers(self, op: Op, types: tuple[TensorType | None, ...]) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates that can run the op, not estimated, and those that cannot."""
        problem = op, types
        offers = self.offers.get(problem)
        if offers is None:
            reasons = {kernel: kernel.reason_against(op, *types) for kernel in self.table.serving(op, self.device)}
            usable = [c for kernel, why in reasons.items() if why is None for c in self._untimed(kernel)]
            offers = (
                usable,
                [Candidate(kernel, False, None, why, {}) for kernel, why in reasons.items() if why is not None],
            )
            _keep(self.offers, problem, offers)
        return offers

    def _untimed(self, kernel: Kernel) -> list[Candidate]:
        """The kernel with each choice of its settings, made once: a lookup asks for the names of all of them."""
        found = self.untimed.get(kernel)
        if found is None:
            found = [Candidate(kernel, True, None, "not timed", settings) for settings in kernel.settings]
            self.untimed[kernel] = found
        return found

    def _candidates(self, op: Op, types: tuple[TensorType | None, ...]) -> tuple[Candidate, ...]:
        problem = op, types
        found = self.rated.get(problem)
        if found is None:
            usable, refused = self._offers(op, types)
            sized = all(t is None or t.is_static for t in types)
            ranked = [_rated(candidate, op, types, sized) for candidate in usable]
            ranked += [((4, 0.0), candidate) for candidate in refused]
            found = tuple(candidate for _, candidate in sorted(ranked, key=lambda pair: pair[0]))
            _keep(self.rated, problem, found)
        return found

    def _refusal(self, op: Op, candidates: Sequence[Candidate]) -> str:
        if not candidates:
            return f"no kernel for {_name(op)} on {self.device}"
        reasons = "; ".join(f"{candidate.kernel.name}: {candidate.note}" for candidate in candidates)
        return f"no kernel for this {_name(op)} on {self.device}: {reasons}"


def _keep(kept: dict[Problem, Answer], problem: Problem, answer: Answer) -> None:
    if len(kept) >= _MOST_KEPT:  # a program may be specialised for ever new shapes
        kept.clear()
    kept[problem] = answer


def _rated(
    candidate: Candidate, op: Op, types: tuple[TensorType | None, ...], sized: bool
) -> tuple[tuple[int, float], Candidate]:
    """(sort key, candidate with its rank); the key is (tier, seconds), so ties keep their order.

    sized: the types have all sizes, so that estimates can be asked for.
    """
    kernel, settings = candidate.kernel, candidate.settings
    if kernel.variant == REFERENCE:
        return (3, 0.0), Candidate(kernel, True, None, "reference", settings)
    if kernel.estimate is not None and sized:
        try:
            seconds = kernel.estimate(op, *types, **settings)
        except PluginError as error:
            _warn(str(error))
            return (4, 0.0), Candidate(kernel, False, None, str(error), settings)
        return (1, seconds), Candidate(kernel, True, seconds, "estimate", settings)
    return (2, 0.0), Candidate(kernel, True, None, "no estimate", settings)


@lru_cache(maxsize=1024)
def _warn(problem: str) -> None:
    """Once in a process: the kernel is not used, which nothing else would show but the time."""
    _log.warning("%s; the kernel is left out", problem)


def _name(op: Op) -> str:
    """`Conv`, or `ChannelsLast of Conv` for an op that holds another."""
    held = getattr(op, "inner", None)
    return type(op).__name__ if held is None else f"{type(op).__name__} of {type(held).__name__}"


def _as_timed(candidate: Candidate, seconds: float | None) -> Candidate:
    return candidate if seconds is None else Candidate(candidate.kernel, True, seconds, "timed", candidate.settings)


def _put_first(candidates: Sequence[Candidate], variant: str, op: Op, device: str) -> list[Candidate]:
    wanted = next((c for c in candidates if c.kernel.variant == variant), None)
    if wanted is None:
        known = ", ".join(c.kernel.variant for c in candidates) or "none"
        raise UnsupportedError(f"no kernel {variant!r} for {type(op).__name__} on {device}; there are: {known}")
    if not wanted.usable:
        raise UnsupportedError(f"kernel {wanted.kernel.name} was asked for, but: {wanted.note}")
    first = Candidate(wanted.kernel, True, wanted.seconds, "asked for", wanted.settings)
    return [first, *(c for c in candidates if c is not wanted)]
