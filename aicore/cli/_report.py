"""What commands print: tables on stdout, progress on stderr, JSON that any parser reads."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from aicore.views import time_text as time_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
_COMMANDS = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "\N{REPLACEMENT CHARACTER}",
)
"""Control characters but tab and line feed, and those that turn the direction of text."""
_UNWRAPPED = 4096
"""Columns of a file or pipe: programs that read lines want them whole."""


@contextmanager
def working(text: str, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on stderr while the block runs; on no terminal, and when quiet, nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> Table:
    """A table without a frame.

    right: headings of columns of numbers. Texts are shown as they are, without markup.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    numbers = set(right)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def show(*parts: Any) -> None:
    """Print texts, without markup, and tables to stdout. Where no terminal ends a line, nothing is wrapped."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNWRAPPED)
    for part in parts:
        is_text = isinstance(part, str)
        console.print(
            printable(part) if is_text else _Printable(part), markup=False, highlight=False, soft_wrap=is_text
        )


def printable(text: str) -> str:
    """The text, with signs for what would command a terminal: names in a model may hold anything."""
    return text.translate(_COMMANDS)


class _Printable:
    """What rich prints, with signs for what would command a terminal."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self._part, options):
            yield Segment(text if control else printable(text), style, control)


def keep_for_json(ctx: typer.Context, wanted: bool) -> bool:
    """For a `--json` option: until the command ends, stdout is for `print_json` alone.

    What plugins, and the libraries that they load, print meanwhile goes to stderr.
    """
    if wanted and not ctx.resilient_parsing:
        ctx.with_resource(_reserved_stdout())
    return wanted


def print_json(data: Any) -> None:
    """Print JSON; numbers that JSON lacks become the texts nan, inf and -inf."""
    stream = _reserved[-1] if _reserved else sys.stdout
    json.dump(_plain(data), stream, indent=2, allow_nan=False)
    stream.write("\n")
    stream.flush()


Json = Annotated[bool, typer.Option("--json", callback=keep_for_json, help="Print JSON for scripts.")]
"""The option of every command that a script may read."""

_reserved: list[TextIO] = []


@contextmanager
def _reserved_stdout() -> Iterator[None]:
    with ExitStack() as stack:
        stream = sys.stdout
        if _descriptor(stream) == 1:  # else Python alone writes to it, such as under a test
            stream = stack.enter_context(_moved(stream))
        stack.enter_context(redirect_stdout(sys.stderr))
        _reserved.append(stream)
        stack.callback(_reserved.pop)
        yield


@contextmanager
def _moved(stream: TextIO) -> Iterator[TextIO]:
    """The stream under another descriptor, while stdout's own leads to stderr."""
    stream.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=stream.encoding, errors=stream.errors, closefd=False) as moved:
            yield moved
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def size_text(count: float) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def _plain(data: Any) -> Any:
    match data:
        case dict():
            return {str(key): _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case float() if not math.isfinite(data):
            return str(data)
    return data
