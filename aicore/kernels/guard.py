"""What a plugin's kernel says of itself, kept from harming the compilation that asks it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aicore.errors import AicoreError, PluginError, error_text


def guarded(call: Callable[..., Any], part: str, kernel: str) -> Callable[..., Any]:
    """The same call, whose exceptions and odd answers become PluginErrors that name kernel and part.

    part: `supports`, `estimate`, `workspace` or `bind`. kernel: it and its plugin, in words.
    Errors of aicore pass through, as do an interrupt and a lack of memory, which are not the kernel's.
    """
    return partial(_ask, call, _CHECKS[part], f"{kernel}: its {part}")


def _ask(call: Callable[..., Any], check: Callable[[Any], str], what: str, /, *arguments: Any, **options: Any) -> Any:
    try:
        answer = call(*arguments, **options)
        problem = check(answer)
    except (AicoreError, KeyboardInterrupt, GeneratorExit, MemoryError):
        raise
    except BaseException as error:  # SystemExit too, which would end the program
        raise PluginError(f"{what} raised {error_text(error)}") from error
    if problem:
        raise PluginError(f"{what} returned {type(answer).__name__}; return {problem}")
    return answer


def _check_reason(answer: Any) -> str:
    return "" if answer is None or isinstance(answer, str) else "None, or the reason as a text"


def _check_seconds(answer: Any) -> str:
    return "" if not math.isnan(answer) else "seconds, not NaN"


def _check_bytes(answer: Any) -> str:
    return "" if operator.index(answer) >= 0 else "a number of bytes, 0 or more"


def _check_bound(answer: Any) -> str:
    """Not more than that: launchers differ in what they run, such as a function, or launches of a graph."""
    return "" if answer is not None else "what the launcher of its device runs"


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "supports": _check_reason,
    "estimate": _check_seconds,
    "workspace": _check_bytes,
    "bind": _check_bound,
}
PARTS = tuple(_CHECKS)
