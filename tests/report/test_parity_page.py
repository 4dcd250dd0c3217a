"""The page of a matrix: what stands in it, and how it behaves in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from aicore.report.packing import Table, number, pack
from aicore.report.parity_page import OUTCOMES, parity_page
from aicore.testing import Outcome
from tests.report.browser import Browser, browser, why_no_browser

KINDS = ("plain", "scalar", "empty", "odd", "broadcast", "special", "strided")
DTYPES = ("float32", "float64", "float16", "bfloat16")


def cell(outcome: str, error: float = 0.0, **more: Any) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "reason": "" if outcome == "passed" else f"because of {outcome}",
        "outcomes": {outcome: 2},
        "worst": "Op-float32-0",
        "kernels": ["op_fast"],
        "steps": 4,
        "max_relative": error,
        "mean_relative": error / 3,
        "max_absolute": error,
        "max_ulps": error * 2**23,
        "share": error * 1e6,
        "wrong": 0,
        "elements": 10,
        "versus": None,
        **more,
    }


def large_matrix() -> dict[str, Any]:
    """2,000 cells: 700 rows on three targets, a failed one among them, and a target that is not here."""
    rows = []
    for i in range(25):
        for dtype in DTYPES:
            for kind in KINDS:
                error = (len(rows) % 97) * 1e-9
                name = f"Op{i}"
                cells = {"cpu": cell("passed", error), "fast": cell("unsupported"), "fake": cell("passed", error)}
                cells["fake"]["versus"] = {**cell("passed"), "wrong": 0}
                cases = [[f"{name}-{dtype}-{n}", "a note", ["passed", error, 1.0], ["unsupported", 0, 0], None]
                         for n in range(3)]  # fmt: skip
                rows.append({"name": name, "dtype": dtype, "kind": kind, "cells": cells, "cases": cases})
    rows[123]["cells"]["fake"] = cell("failed", 0.25, reason="1 of 10 elements are wrong </script>", share=float("inf"))
    columns = [
        {"name": name, "fingerprint": f"{name} 1.0", "source": "", "reason": "", "score": 0.5, "steps": 12,
         "outcomes": {"passed": 10, "failed": 1}}
        for name in ("cpu", "fast", "fake")
    ]  # fmt: skip
    columns.append({**columns[0], "name": "cuda", "reason": "no driver <b>", "outcomes": {}, "score": 0.0})
    return {"title": "cpu & friends", "right": False, "remarks": ["a remark"], "columns": columns, "rows": rows}


@pytest.fixture(scope="module")
def page() -> str:
    return parity_page(large_matrix(), "0.1.0")


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def test_nothing_is_fetched(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert not [tag for tag, attributes in tags.found if {"src", "href", "srcset"} & attributes.keys()]
    assert "http" not in re.sub(r"https?://www\.w3\.org/\S*", "", page)
    assert "@import" not in page
    assert "url(" not in page


def test_what_others_wrote_is_escaped(page: str) -> None:
    assert "cpu &amp; friends" in page
    assert "no driver &lt;b&gt;" in page
    assert page.count("</script>") == 2


def test_every_outcome_has_a_sign() -> None:
    assert set(OUTCOMES) == {str(outcome) for outcome in Outcome}
    assert len({sign for sign, _ in OUTCOMES.values()}) == len(OUTCOMES)


def test_the_page_is_small(page: str) -> None:
    """A matrix of all ops has 9,000 cells and 22,000 verdicts; each of these has two to three of them."""
    styles_and_script = len(parity_page({**large_matrix(), "rows": []}, "0.1.0"))
    assert (len(page) - styles_and_script) / 2100 < 100  # characters for each cell, with its verdicts


def test_equal_values_are_written_once() -> None:
    table = Table()
    assert [table.position(value) for value in ("a", [1, "a"], "a", [1, "a"], 1, "1")] == [0, 1, 0, 1, 2, 3]
    assert table.values == ["a", [1, "a"], 1, "1"]


@pytest.mark.parametrize(
    ("value", "packed"),
    [(None, None), (0.0, 0), (1.23456e-9, 1.23e-9), (2.0, 2), (1234.5, 1230), (1e300, 1e300), (12345, 12345),
     (float("inf"), "inf"), (float("nan"), "nan")],
)  # fmt: skip
def test_numbers_are_rounded_and_those_that_are_no_json_are_texts(value: float | None, packed: Any) -> None:
    assert number(value) == packed
    assert type(number(value)) is type(packed)


def test_what_a_row_says_is_not_said_again() -> None:
    fallen = {**cell("fallback"), "worst": "Op-int8-1", "outcomes": {"passed": 1, "fallback": 1}}
    refused = {key: fallen[key] for key in ("outcome", "reason", "outcomes", "worst", "kernels", "steps", "versus")}
    row = {
        "name": "Op", "dtype": "int8", "kind": "odd",
        "cells": {"a": {**fallen, "versus": cell("passed", 0.5)}, "c": {**refused, "worst": "a pass", "kernels": []}},
        "cases": [["Op-int8-0", "a note", ["passed", 0.0, 0.0], None, ["fallback", 0.0, 0.0]],
                  ["special", "", ["passed", 0.25, 9.0], None, ["failed", float("inf"), 9.0]],
                  ["Op-int8-1", "a note", ["passed", 0.0, 0.0], None, ["unsupported", 0.0, 0.0]]],
    }  # fmt: skip
    packed = pack([row], ["a", "b", "c"], list(OUTCOMES))
    name, dtype, kind, cells, cases = packed["rows"][0]
    assert [packed["texts"][i] for i in (name, dtype, kind)] == ["Op", "int8", "odd"]
    assert cells == [0, -1, 1]
    assert cases == [["-0", cases[0][1], 0, None, [2]], ["=special", cases[1][1], 0.25, None, [6, "inf"]],
                     ["-1", cases[0][1], 0, None, [3]]]  # fmt: skip
    outcome, reason, counts, worst, kernels, steps, errors, versus = packed["cells"][0]
    assert (outcome, packed["texts"][reason], counts, worst, steps) == (
        2,
        "because of fallback",
        [[0, 1], [2, 1]],
        2,
        4,
    )
    assert [packed["texts"][i] for i in kernels] == ["op_fast"]
    assert errors == 10  # all of them exact
    assert versus == [0.5, 0.167, 0.5, 4190000, 500000, 0, 10]
    assert packed["cells"][1][3:] == ["a pass", [], 4, None, None]


def test_an_empty_matrix() -> None:
    empty = {"title": "none", "right": True, "remarks": [], "columns": [], "rows": []}
    assert "nothing is wrong" in parity_page(empty, "0.1.0")


# ---- in a browser

needs_browser = pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser() or "-")


@pytest.fixture(scope="module")
def window(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    (folder / "parity.html").write_text(page, encoding="utf-8")
    with browser(folder) as opened:
        opened.resize(1440)
        opened.open(folder / "parity.html")
        yield opened


@pytest.fixture
def fresh(window: Browser) -> Browser:
    window.resize(1440)
    window.run("location.reload()")
    return window


def shown(window: Browser) -> list[str]:
    return window.run(  # type: ignore[no-any-return]
        "return [...document.querySelectorAll('#matrix > tbody > tr[data-row]')].filter(r => !r.hidden)"
        ".map(r => r.cells[0].textContent + ' ' + r.cells[1].textContent + ' ' + r.cells[2].textContent)"
    )


def focused(window: Browser) -> Any:
    return window.run("return document.activeElement.dataset.row ?? document.activeElement.id")


@needs_browser
def test_it_runs_without_an_error(fresh: Browser) -> None:
    assert len(shown(fresh)) == 700
    assert fresh.run("return document.getElementById('shown').textContent") == "700 of 700 rows"
    assert fresh.problems() == []


@needs_browser
def test_cells_are_as_the_matrix_says(fresh: Browser) -> None:
    def texts(row: int) -> Any:
        return fresh.run(f"return [...document.querySelector('tr[data-row=\"{row}\"]').cells].map(c => c.textContent)")

    assert texts(0) == ["Op0", "float32", "plain", "3", "✓passed 0", "–unsupported 0", "✓passed 0", ""]
    assert texts(96)[4] == "✓passed 9.6e-8 0.81 ulp"
    assert texts(123)[6] == "✗failed 2.5e-1 2e6 ulp"
    classes = fresh.run("return [...document.querySelector('tr[data-row=\"96\"]').cells].map(c => c.className)")
    assert classes[4:] == ["number cell o-passed h1", "number cell o-unsupported h0", "number cell o-passed h1",
                           "number cell none"]  # fmt: skip


@needs_browser
def test_details_have_every_case(fresh: Browser) -> None:
    fresh.click("tr[data-row='96'] > th")
    rows = fresh.run(
        "return [...document.querySelectorAll('.cases tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    name = "-".join(shown(fresh)[96].split()[:2])
    assert rows == [[f"{name}-{n}", "a note", "✓ 9.60e-8", "–", "·"] for n in range(3)]


@needs_browser
def test_filters_narrow_each_other(fresh: Browser) -> None:
    fresh.choose("#filter", "op1 float16")
    assert len(shown(fresh)) == 11 * 7 * 2  # Op1 and Op10 to Op19; bfloat16 contains float16
    fresh.choose("#dtype", "float16")
    fresh.choose("#kind", "odd")
    assert len(shown(fresh)) == 11
    fresh.choose("#filter", "nothing like it")
    assert shown(fresh) == []
    assert not fresh.run("return document.getElementById('nothing').hidden")
    fresh.click("#reset")
    assert len(shown(fresh)) == 700


@needs_browser
def test_outcomes_are_chosen_by_chips(fresh: Browser) -> None:
    fresh.click(".chip[data-outcome=failed]")
    assert shown(fresh) == ["Op4 float64 broadcast"]
    fresh.click(".chip[data-outcome=unsupported]")
    assert len(shown(fresh)) == 700


@needs_browser
def test_reasons_are_found_too(fresh: Browser) -> None:
    fresh.choose("#filter", "elements are wrong")
    assert len(shown(fresh)) == 1


@needs_browser
def test_columns_sort_and_back(fresh: Browser) -> None:
    original = shown(fresh)
    fresh.click("thead button[data-column=fake]")
    assert shown(fresh)[0] == "Op4 float64 broadcast"  # what failed is above every error
    assert fresh.run("return document.querySelector('thead [data-column=fake]').parentElement.ariaSort") == "descending"
    fresh.click("thead button[data-column=fake]")
    assert shown(fresh)[-1] == "Op4 float64 broadcast"
    fresh.click("thead button[data-column=fake]")
    assert shown(fresh) == original
    fresh.click("thead button[data-key=name]")
    names = [text.split()[0] for text in shown(fresh)]
    assert names == sorted(names, key=lambda name: int(name[2:]))


@needs_browser
def test_the_keyboard_reaches_everything(fresh: Browser) -> None:
    fresh.press("/")
    assert focused(fresh) == "filter"
    fresh.press(*"op3", "ArrowDown")
    assert focused(fresh) == "84"
    fresh.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert focused(fresh) == "85"
    fresh.press("Enter")
    detail = fresh.run("return document.querySelector('.detail').innerText")
    assert "of the limit" in detail
    assert "op_fast" in detail
    assert "Op3-float32-2" in detail
    fresh.press("Escape")
    assert fresh.run("return document.querySelector('.detail')") is None
    assert focused(fresh) == "85"
    fresh.press("Escape")
    assert len(shown(fresh)) == 700
    fresh.press("End")
    assert focused(fresh) == "699"


@needs_browser
def test_details_tell_the_first_column_and_the_reason(fresh: Browser) -> None:
    fresh.choose("#filter", "op4 float64 broadcast")
    fresh.click("#matrix > tbody > tr:not([hidden]) > th")
    detail = fresh.run("return document.querySelector('.detail').innerText")
    assert "1 of 10 elements are wrong </script>" in detail
    fresh.choose("#filter", "op5 float64 odd")
    fresh.click("#matrix > tbody > tr:not([hidden]) > th")
    assert "beside cpu\nequal" in fresh.run("return document.querySelector('.detail').innerText")


@needs_browser
@pytest.mark.parametrize("width", [1440, 720, 390, 320])
def test_no_width_scrolls_sideways(fresh: Browser, width: int) -> None:
    fresh.resize(width)
    fresh.click("#matrix > tbody > tr > th")
    assert fresh.run("return document.documentElement.scrollWidth") <= width
    out = fresh.run(
        "return [...document.querySelectorAll('h1, .column, .chip, #matrix .cell, .block')].filter(e => e.offsetParent)"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert out == []


@needs_browser
def test_light_and_dark(fresh: Browser) -> None:
    def paper() -> Any:
        return fresh.run("return getComputedStyle(document.body).backgroundColor")

    fresh.prefer("dark")
    dark = paper()
    fresh.prefer("light")
    light = paper()
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    fresh.click("#theme")
    assert paper() == dark
    fresh.click("#theme")
    fresh.click("#theme")
    assert paper() == light


@needs_browser
def test_texts_have_contrast(fresh: Browser) -> None:
    """WCAG 2: at least 4.5 to 1 for text, in both schemes."""
    script = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        fresh.prefer(scheme)
        assert fresh.run(script) == [], scheme


@needs_browser
def test_two_thousand_cells_are_quick(fresh: Browser) -> None:
    """No timed assert: the browser itself says whether one of these tasks kept a reader waiting."""
    fresh.run("window.slow = []; new PerformanceObserver(l => window.slow.push(...l.getEntries().map(e => e.duration)))"
              ".observe({type: 'longtask'})")  # fmt: skip
    fresh.choose("#filter", "float16")
    fresh.click("thead button[data-key=name]")
    assert max([0, *fresh.run("return window.slow")]) < 2000
