"""What views of a result share: a text by `str`, colours in a terminal, HTML in a notebook, plain data for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.records import dataclass

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = 4096
"""Of text made by `str`: lines are never wrapped."""
_WIDTH = 120
"""Of HTML made from what rich prints."""
_PRE = '<pre style="font-family:monospace;line-height:1.3;overflow-x:auto">{code}</pre>'


class View:
    """A frozen object that shows itself. Subclasses define `__str__` and `to_json`, and `__rich__` for more than text.

    `PartsView` derives all but `to_json`.
    """

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(str(self))

    def _repr_html_(self) -> str:
        return rich_html(self)

    def to_json(self) -> Any:
        """Plain data, which any JSON writer takes."""
        raise NotImplementedError(f"{type(self).__name__}.to_json")


@dataclass(frozen=True)
class Grid:
    """A table.

    right: headings of columns of numbers.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = field(default_factory=frozenset)

    def rich(self) -> Table:
        """Without a frame; texts are shown as they are, without markup."""
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, pad_edge=False)
        for heading in self.headings:
            made.add_column(heading, justify="right" if heading in self.right else "left", overflow="fold")
        for row in self.rows:
            made.add_row(*map(Text, row))
        return made

    def html(self) -> str:
        """A table element; every text is escaped."""
        from html import escape  # for pages alone; so below

        ends = [' style="text-align:right"' if heading in self.right else "" for heading in self.headings]
        head = "".join(f"<th{end}>{escape(text)}</th>" for end, text in zip(ends, self.headings, strict=True))
        rows = (
            "".join(f"<td{end}>{escape(text)}</td>" for end, text in zip(ends, row, strict=True)) for row in self.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Picture:
    """Something drawn: as characters for a terminal, as an SVG element for HTML."""

    text: str
    svg: str


Part: TypeAlias = str | Grid | Picture


class PartsView(View):
    """A view that is written once, as parts: they become the text, what rich prints, and HTML."""

    def parts(self) -> Iterator[Part]:
        """Texts, tables and pictures, from top to bottom."""
        raise NotImplementedError(f"{type(self).__name__}.parts")

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=_COLUMNS, color_system=None, force_terminal=False)
        with console.capture() as captured:
            for part in self.parts():
                console.print(rich_part(part), markup=False, highlight=False, soft_wrap=not isinstance(part, Grid))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*map(rich_part, self.parts()))

    def _repr_html_(self) -> str:
        return "\n".join(map(html_part, self.parts()))


def rich_part(part: Part) -> Any:
    """What rich prints for a part."""
    if isinstance(part, Grid):
        return part.rich()
    from rich.text import Text

    return Text(part.text if isinstance(part, Picture) else part)


def html_part(part: Part) -> str:
    """The HTML of a part; every text is escaped."""
    if isinstance(part, Grid):
        return part.html()
    if isinstance(part, Picture):
        return part.svg
    from html import escape

    return f"<p>{escape(part)}</p>" if part else ""


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> Grid:
    """A table; `right` names columns of numbers. Raises ValueError for a row of another length than the headings."""
    made = tuple(map(tuple, rows))
    wrong = next((row for row in made if len(row) != len(headings)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} has {len(wrong)} cells for {len(headings)} headings")
    return Grid(tuple(headings), made, frozenset(right))


def time_text(seconds: float) -> str:
    """Seconds with three digits or so, in a unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def rich_html(renderable: Any, width: int = _WIDTH) -> str:
    """What rich shows in a terminal of so many columns, as HTML that stands by itself: styles are inline."""
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor")
    console.print(renderable, soft_wrap=True)
    return console.export_html(inline_styles=True, code_format=_PRE)
