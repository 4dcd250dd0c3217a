"""The page of a matrix: what stands in it, and how it behaves in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from aicore.report.parity_page import OUTCOMES, _ulps, parity_page
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


@pytest.mark.parametrize(("ulps", "text"), [(0.5, "0.5"), (9.96, "10"), (1259.6, "1,260"), (3e7, "3e+07")])
def test_units_in_the_last_place(ulps: float, text: str) -> None:
    assert _ulps(ulps) == text


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
