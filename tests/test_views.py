"""What is written once as parts has a text, a rich and an HTML form, and every text of others stays a text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.text import Text

from aicore.views import Grid, Part, PartsView, Picture, View, grid, rich_html, time_text

LONG = "word " * 60


class Plain(View):
    def __str__(self) -> str:
        return "a [bold]<plain>[/bold] text"


class Parts(PartsView):
    def parts(self) -> Iterator[Part]:
        yield "a [red]<text>[/red]"
        yield ""
        yield LONG
        yield grid(("name", "bytes"), [("<x>", "1"), ("[y]", "20")], right=("bytes",))
        yield Picture("##", "<svg></svg>")


def shown(view: View) -> str:
    console = Console(width=1000, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def test_markup_of_others_is_text() -> None:
    assert "a [bold]<plain>[/bold] text" in shown(Plain())
    assert "&lt;plain&gt;" in Plain()._repr_html_()
    assert "a [red]<text>[/red]" in str(Parts())
    html = Parts()._repr_html_()
    assert "<p>a [red]&lt;text&gt;[/red]</p>" in html
    assert "<td>&lt;x&gt;</td>" in html


def test_text_is_never_wrapped() -> None:
    lines = str(Parts()).splitlines()
    assert lines[2] == LONG.rstrip()
    assert lines[3:] == ["name  bytes", "<x>       1", "[y]      20", "##"]
    assert [line.rstrip() for line in shown(Parts()).splitlines()] == lines


def test_numbers_are_on_the_right() -> None:
    html = Parts()._repr_html_()
    assert '<th style="text-align:right">bytes</th>' in html
    assert '<td style="text-align:right">20</td>' in html
    assert html.endswith("<svg></svg>")


def test_a_row_has_a_cell_for_each_heading() -> None:
    with pytest.raises(ValueError, match="3 cells for 2 headings"):
        grid(("a", "b"), [("1", "2"), ("1", "2", "3")])
    assert grid(("a",), []) == Grid(("a",), ())


def test_forms_that_are_missing_are_said() -> None:
    with pytest.raises(NotImplementedError, match=r"Plain\.to_json"):
        Plain().to_json()
    with pytest.raises(NotImplementedError, match=r"PartsView\.parts"):
        str(PartsView())


def test_html_of_what_rich_prints_keeps_colours() -> None:
    html = rich_html(Text("<red>", style="red"))
    assert html.startswith("<pre style=")
    assert "&lt;red&gt;" in html
    assert "color: #800000" in html


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (1.5e-6, "1.5 us"), (0.0, "0 us"), (1e-9, "0.001 us")]
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
