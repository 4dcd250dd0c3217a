"""A change that is wrong only together with others: which rules and passes these are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from aicore.passes import RulePass
from aicore.passes.base import is_required
from aicore.plugins import PluginRegistry
from aicore.testing.wholes import all_passes


def partners_of(
    name: str, made: Collection[str], registry: PluginRegistry, is_wrong_without: Callable[[Sequence[str]], bool]
) -> tuple[str, ...] | None:
    """The fewest rules and passes together with which a change is wrong; none if it is so alone, None if never.

    name: of its rule, or of its pass. made: of rules and passes that made changes before it.
    is_wrong_without: whether results are wrong with rules and passes left out.
    """
    everything = [one for one in _optional(registry) if one != name]

    def is_wrong(kept: Sequence[str]) -> bool:
        return is_wrong_without([one for one in everything if one not in kept])

    others = [one for one in everything if one in made]
    if is_wrong(()):
        return ()
    return _fewest(others, is_wrong) if is_wrong(others) else None


def partners_text(name: str, partners: tuple[str, ...] | None) -> str:
    """The end of a verdict."""
    if partners is None:
        return ""
    if not partners:
        return f". With {name} alone they are wrong, too: its own matches take part"
    return f". They are wrong with {', '.join(partners)} and {name} alone"


def _optional(registry: PluginRegistry) -> list[str]:
    """Rules, and passes without rules, that may be left out."""
    found: list[str] = []
    for one in all_passes(registry).values():
        if not is_required(one):
            found += [rule.name for rule in one.rules] if isinstance(one, RulePass) else [one.name]
    return found


def _fewest(names: Sequence[str], is_wrong: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Of names that are wrong all together, those that are so without the others: halves go first, then smaller parts.

    Source: Zeller and Hildebrandt, Simplifying and isolating failure-inducing input (2002), without its second rounds.
    """
    kept, size = list(names), len(names) // 2
    while size:
        for start in reversed(range(0, len(kept), size)):
            rest = kept[:start] + kept[start + size :]
            if rest and is_wrong(rest):
                kept = rest
        size //= 2
    return tuple(kept)
