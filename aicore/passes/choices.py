"""What a compilation does otherwise than by default: rules and passes left out, options, a limit of changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

from aicore.errors import ConfigError, meant
from aicore.passes.base import Pass, RulePass, is_required
from aicore.records import dataclass

Option: TypeAlias = "int | bool | str | tuple[str, ...]"
_NAME = r"[A-Za-z0-9_][\w-]*"
_ITEM = re.compile(rf"-(?P<off>{_NAME})|limit=(?P<limit>[0-9]{{1,18}})(?![0-9])|(?P<pass>{_NAME})\.(?P<field>\w+)=")
_EMPTY = "default"


@dataclass(frozen=True)
class Choices:
    """Text by `str`, as the command line takes it: `-fuse-ConvAct,fuse-pointwise.largest=8,limit=250`.

    off: names of rules and passes that are left out.
    settings: (pass, field, value) of each option that is set.
    limit: only so many changes are made, the first ones; those of required passes are not counted.
    """

    off: tuple[str, ...] = ()
    settings: tuple[tuple[str, str, Option], ...] = ()
    limit: int | None = None

    def __bool__(self) -> bool:
        return self != Choices()

    def __str__(self) -> str:
        parts = [f"-{name}" for name in self.off]
        parts += [f"{name}.{field}={_written(value)}" for name, field, value in self.settings]
        parts += [] if self.limit is None else [f"limit={self.limit}"]
        return ",".join(parts) or _EMPTY

    @classmethod
    def parse(cls, text: str) -> Choices:
        """What `str` gives. Raises ConfigError naming the part that is none."""
        chosen = cls()
        at = 0
        text = text.strip()
        while text not in ("", _EMPTY) and at <= len(text):
            item = _ITEM.match(text, at)
            if item is None:
                raise ConfigError(
                    f"{text[at:]!r} in {text!r} is no choice; write -NAME for a rule or pass to leave out, "
                    f"PASS.FIELD=VALUE for an option, or limit=COUNT, with commas between them"
                )
            at = item.end()
            if item["off"]:
                chosen = chosen.without(item["off"])
            elif item["limit"]:
                chosen = replace(chosen, limit=int(item["limit"]))
            else:
                value, at = _read(text, at)
                chosen = chosen.set(item["pass"], item["field"], value)
            if at < len(text) and text[at] != ",":
                raise ConfigError(f"{text[at:]!r} in {text!r}: a comma should stand before it")
            at += 1
        return chosen

    def without(self, *names: str) -> Choices:
        """These, with more rules or passes left out."""
        return replace(self, off=tuple(sorted({*self.off, *names})))

    def including(self, *names: str) -> Choices:
        """These, with rules or passes no longer left out."""
        return replace(self, off=tuple(name for name in self.off if name not in names))

    def set(self, pass_name: str, field: str, value: Option) -> Choices:
        """These, with another value of an option."""
        others = [s for s in self.settings if s[:2] != (pass_name, field)]
        return replace(self, settings=tuple(sorted([*others, (pass_name, field, value)], key=lambda s: s[:2])))

    def get(self, one: Pass, field: str) -> Any:
        """The value that an option of the pass has."""
        found = [value for name, key, value in self.settings if (name, key) == (one.name, field)]
        return found[0] if found else getattr(one, field)

    def apply(self, passes: Sequence[Pass]) -> tuple[Pass, ...]:
        """The passes that are left, with their options; rules that are off are for the passes' context to leave out."""
        kept = [one for one in passes if one.name not in self.off or is_required(one)]
        return tuple(self._with_options(one) for one in kept)

    def check(self, passes: Iterable[Pass]) -> None:
        """Raise ConfigError for a name or a value that fits none of these passes, with the one that was meant."""
        known = {one.name: one for one in passes}
        rules = {rule.name for one in known.values() if isinstance(one, RulePass) for rule in one.rules}
        for name in self.off:
            if name not in known and name not in rules:
                raise ConfigError(f"no rule or pass is called {name!r}{_meant(name, {*known, *rules})}")
            if name in known and is_required(known[name]):
                raise ConfigError(f"pass {name} cannot be left out: programs may not run without it")
        for name, field, value in self.settings:
            if name not in known:
                raise ConfigError(f"no pass is called {name!r}{_meant(name, set(known))}")
            _check_option(known[name], field, value)

    def _with_options(self, one: Pass) -> Pass:
        mine = {field: value for name, field, value in self.settings if name == one.name}
        return replace(one, **mine) if mine else one


def options_text(one: Pass) -> str:
    """`largest=64`: the options of a pass, with the values that they have."""
    return ", ".join(f"{name}={_written(value)}" for name, value in _options(one).items())


def _options(one: Pass) -> dict[str, Any]:
    """Its fields; a plugin's own class, which need not be a Pass, may have none."""
    return {field.name: getattr(one, field.name) for field in fields(one)} if is_dataclass(one) else {}


def _check_option(one: Pass, field: str, value: Option) -> None:
    options = _options(one)
    if field not in options:
        raise ConfigError(f"pass {one.name} has no option {field!r}{_meant(field, set(options))}")
    wanted = type(options[field])
    right = type(value) is wanted and (wanted is not tuple or all(isinstance(item, str) for item in value))  # type: ignore[union-attr]
    if not right or (wanted is int and value < 0):  # type: ignore[operator]
        kind = "a list of texts" if wanted is tuple else f"of type {wanted.__name__}, and not negative"
        raise ConfigError(f"{one.name}.{field}={_written(value)}: the value must be {kind}")


def _meant(name: str, known: set[str]) -> str:
    return meant(name, known) or f"; there are: {', '.join(sorted(known)) or 'none'}"


def _written(value: Any) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))


def _read(text: str, at: int) -> tuple[Option, int]:
    """The JSON value at a place, and where it ends."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError) as error:  # a number may also have more digits than Python reads
        raise ConfigError(f"{text[at:]!r} in {text!r} begins with no value: {error}") from error
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value), end
    if not isinstance(value, int | bool | str):
        raise ConfigError(f"{text[at:end]!r} in {text!r} is no number, text, truth value or list of texts")
    return value, end
