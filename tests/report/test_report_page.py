"""The report of a model: what stands in it, and how it behaves in a browser."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import AicoreError, InputError
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry
from aicore.report.embedding import library
from aicore.report.page import report_page
from aicore.runtime import Ceilings, Profile
from tests.report.browser import Browser, browser, why_no_browser
from tests.report.test_parity_page import Tags, large_matrix

HOSTILE = '</script><b id="evil">'
LAYERS = 5
MANY = 500
"""Layers of the large graph, of four nodes each."""
D3 = "f2094bbf6141b359722c4fe454eb6c4b0f0e42cc10cc7af921fc158fceb86539"
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def network(layers: int, side: int = 8) -> Graph:
    """Layers of a product, a Tanh, a Softmax and a sum with what came in, and a hostile name."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = value = b.input("x", "float32", (side, side))
    for _ in range(layers):
        weight = b.constant((rng.standard_normal((side, side)) / 8).astype(np.float32))
        value = b.Add(b.Softmax(b.Tanh(b.MatMul(value, weight)), axis=1), value)
    return b.graph((x,), {HOSTILE: b.ReduceSum(b.Concat(value, b.Identity(x), axis=0))})


def profiled(program: aicore.Program, side: int = 8) -> Profile:
    found = program.profile({"x": np.ones((side, side), np.float32)}, 2, ceilings=False)
    return Profile(found.runs, found.plain, {"cpu": Ceilings(1e11, 1e10, "declared")}, {"core": f"a reason {HOSTILE}"})


@pytest.fixture(scope="module")
def compiled() -> aicore.Program:
    return aicore.compile(network(LAYERS), "cpu", trace=True)


@pytest.fixture(scope="module")
def page(compiled: aicore.Program) -> str:
    matrix = {**large_matrix(), "rows": large_matrix()["rows"][:200]}
    return report_page(f"a {HOSTILE}", network(LAYERS), compiled, profiled(compiled), matrix, "0.1.0", ["a remark"])


@pytest.fixture(scope="module")
def large_page() -> str:
    program = aicore.compile(network(MANY), "cpu", trace=True, optimize=False)
    return report_page("large", network(MANY), program, profiled(program), None, "0.1.0")


def data_of(page: str) -> Any:
    (found,) = DATA.findall(page)
    return json.loads(found)


def test_nothing_is_fetched(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    links = [attributes.get("href") for tag, attributes in tags.found if tag == "link"]
    assert links == ["data:,"], "an empty icon keeps browsers from asking for one"
    assert not [tag for tag, attributes in tags.found if {"src", "srcset"} & attributes.keys()]
    assert "@import" not in page
    assert not re.findall(r"fetch\(|XMLHttpRequest|url\((?!#)", DATA.sub("", page).split("// https://d3js.org")[0])


def test_what_others_wrote_is_escaped(page: str) -> None:
    assert HOSTILE not in page
    assert "a &lt;/script&gt;&lt;b id=&#34;evil&#34;&gt;" in page
    assert page.count("</script>") == 3  # the library, the data, the program


def test_the_data_are_those_of_the_program(compiled: aicore.Program, page: str) -> None:
    data = data_of(page)
    specialised = compiled.explain().specialised
    assert specialised is not None
    nodes = data["graph"]["nodes"]
    assert len(nodes) == len(specialised.graph.nodes)
    assert sum("measured" in node for node in nodes) == sum(len(plan.steps) for plan in compiled.plan)
    choices = [choice for choice in compiled.explain().kernels if choice.candidates]
    for node, choice in zip([node for node in nodes if node["candidates"]], choices, strict=True):
        names = [data["graph"]["texts"][candidate[0]] for candidate in node["candidates"]]
        assert names == [candidate.name for candidate in choice.candidates]
        assert node["kernel"] == names[0]
    assert [one["name"] for one in data["passes"]] == [step.name for step in compiled.trace.steps]
    assert any(one["diff"] for one in data["passes"])
    assert data["memory"][0]["arena"] == compiled.plan[0].memory.arena
    assert len(data["profile"]["rows"]) == sum("measured" in node for node in nodes)
    assert data["graph"]["blocks"][0][2] == LAYERS


def test_edges_are_those_of_the_graph(page: str) -> None:
    graph = data_of(page)["graph"]
    count = len(graph["nodes"])
    wanted = {(operand[2], i) for i, node in enumerate(graph["nodes"]) for operand in node["inputs"]
              if operand is not None and operand[2] is not None}  # fmt: skip
    edges = {(a, b) for a, b, _ in graph["edges"]}
    assert {edge for edge in edges if edge[1] < count} == wanted
    assert {edge[1] for edge in edges if edge[1] >= count} == {count}


def test_without_a_profile_and_sizes(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", ("n",))
    graph = b.graph((x,), {"y": b.Neg(b.Exp(x))})
    program = aicore.compile(graph, "cpu", registry=registry, trace=True)
    data = data_of(report_page("open", graph, program, None, None, "0.1.0"))
    assert (data["profile"], data["memory"], data["parity"]) == (None, [], None)
    assert all(node["kernel"] == "" for node in data["graph"]["nodes"])


def test_a_profile_of_other_shapes_is_refused(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", ("n",))
    graph = b.graph((x,), {"y": b.Neg(b.Exp(x))})
    program = aicore.compile(graph, "cpu", registry=registry, trace=True)
    profile = program.profile({"x": np.ones(4, np.float32)}, 1, ceilings=False)
    program.run({"x": np.ones(5, np.float32)})
    with pytest.raises(InputError, match="other input shapes"):
        report_page("other", graph, program, profile, None, "0.1.0")


def test_a_program_without_a_trace_is_refused(registry: PluginRegistry) -> None:
    program = aicore.compile(network(1), "cpu", registry=registry)
    with pytest.raises(AicoreError, match="trace"):
        report_page("no trace", network(1), program, None, None, "0.1.0")


def test_the_library_is_as_it_was_published() -> None:
    """D3 7.9.0, dist/d3.min.js of the package d3 in the npm registry, with its licence beside it."""
    text = library("d3.min.js")
    assert hashlib.sha256(text.encode()).hexdigest() == D3
    assert text.startswith("// https://d3js.org v7.9.0")
    assert "Permission to use, copy, modify" in library("d3.LICENSE")


def test_the_large_page_is_small_enough(large_page: str) -> None:
    assert len(data_of(large_page)["graph"]["nodes"]) >= 2000
    assert len(large_page.encode()) < 5_000_000


# ---- in a browser

needs_browser = pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser() or "-")


@pytest.fixture(scope="module")
def window(page: str, large_page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    folder = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(page, encoding="utf-8")
    (folder / "large.html").write_text(large_page, encoding="utf-8")
    with browser(folder) as opened:
        opened.resize(1440)
        opened.command("Network.enable")
        opened.command(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        yield opened, folder


@pytest.fixture
def fresh(window: tuple[Browser, Path]) -> Browser:
    opened, folder = window
    opened.resize(1440)
    opened.prefer("light")
    opened.open(folder / "report.html")
    return opened


@pytest.fixture
def large(window: tuple[Browser, Path]) -> Browser:
    opened, folder = window
    opened.resize(1440)
    opened.command("Performance.disable")
    opened.command("Performance.enable", timeDomain="threadTicks")
    opened.open(folder / "large.html")
    return opened


def busy(window: Browser) -> float:
    """Seconds of a processor that the page has taken: what else the machine does counts for nothing."""
    metrics = window.command("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def boxes(window: Browser) -> list[str]:
    window.run(_SETTLED)
    return window.run("return [...document.querySelectorAll('.box .name')].map(e => e.textContent)")  # type: ignore[no-any-return]


_SETTLED = "return new Promise((done) => setTimeout(() => requestAnimationFrame(() => done()), 400))"


_BEYOND = """
const some = document.querySelectorAll('h1, h2, .tiles > div, .tools > *, .chart svg, .stage, #detail, .pane');
const seen = [...some].filter((e) => e.getClientRects().length);
return seen.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80));
"""


def shown_panel(window: Browser) -> Any:
    return window.run("return [...document.querySelectorAll('[role=tabpanel]')].filter(e => !e.hidden).map(e => e.id)")


@needs_browser
def test_it_opens_with_no_network_and_no_error(fresh: Browser) -> None:
    for name in ("graph", "passes", "kernels", "memory", "profile", "parity"):
        fresh.click(f"#tab-{name}")
        assert shown_panel(fresh) == [name]
    assert fresh.problems() == []
    assert fresh.run("return performance.getEntriesByType('resource').length") == 0
    assert fresh.run("return document.getElementById('evil')") is None


@needs_browser
def test_blocks_fold_and_unfold(fresh: Browser) -> None:
    folded = boxes(fresh)
    assert f"▸ {LAYERS} × block A" in folded
    fresh.click(".box.fold")
    fresh.click("#detail .action")
    assert sum("block A" in text for text in boxes(fresh)) == LAYERS
    fresh.click("#fold")
    assert "Softmax" in " ".join(boxes(fresh))
    assert not [text for text in boxes(fresh) if "block" in text]
    fresh.click("#fold")
    assert boxes(fresh) == folded


@needs_browser
def test_finding_unfolds_and_chooses(fresh: Browser) -> None:
    fresh.press("/")
    fresh.press(*"softmax")
    assert fresh.run("return document.getElementById('found').textContent").split()[0] == str(LAYERS)
    fresh.press("Enter")
    assert fresh.run("return document.querySelector('#detail h2').textContent").startswith("Softmax")
    assert fresh.run("return document.getElementById('found').textContent") == f"1 of {LAYERS}"
    detail = fresh.run("return document.getElementById('detail').innerText")
    for word in ("makes", "reads", "kernel", "of what the ceilings allow", "considered"):
        assert word in detail
    assert fresh.run("return document.querySelectorAll('#detail .scroll tbody tr').length") > 1


@needs_browser
def test_the_keyboard_walks_the_graph(fresh: Browser) -> None:
    def chosen() -> Any:
        return fresh.run("return document.querySelector('#detail h2').textContent")

    fresh.run("document.getElementById('canvas').focus()")
    fresh.press("ArrowDown")
    assert chosen() == "input %x"
    fresh.press("ArrowDown")
    assert chosen().startswith(f"{LAYERS} × block A")
    fresh.press("Enter")
    assert chosen().startswith(f"block A · 1 of {LAYERS}")
    fresh.press("Enter", "ArrowDown")
    inner = chosen()
    assert "block" not in inner
    fresh.press("ArrowUp")
    assert chosen() != inner
    fresh.press("Backspace")
    assert chosen().startswith(f"block A · 1 of {LAYERS}")
    fresh.press("Backspace")
    assert chosen().startswith(f"{LAYERS} × block A")
    fresh.press("2")
    assert shown_panel(fresh) == ["passes"]
    fresh.press("ArrowRight")
    assert shown_panel(fresh) == ["kernels"]


@needs_browser
def test_zoom(fresh: Browser) -> None:
    def scale() -> float:
        return float(
            fresh.run("return new DOMMatrix(getComputedStyle(document.querySelector('#canvas > g')).transform).a")
        )

    before = scale()
    fresh.click("#zoom-in")
    assert scale() > before
    fresh.run("document.getElementById('canvas').focus()")
    fresh.press("-", "-")
    assert scale() < before
    fresh.press("0")
    fresh.run(_SETTLED)
    inside = fresh.run(
        "const s = document.getElementById('canvas').getBoundingClientRect();"
        "return [...document.querySelectorAll('.box')].map(e => e.getBoundingClientRect())"
        ".every(r => r.left >= s.left && r.right <= s.right && r.top >= s.top && r.bottom <= s.bottom)"
    )
    assert inside


@needs_browser
def test_passes_show_what_they_changed(fresh: Browser) -> None:
    fresh.click("#tab-passes")
    assert fresh.run("return document.querySelectorAll('.diff .added').length") > 0
    assert fresh.run("return document.querySelectorAll('.diff .removed').length") > 0
    few = fresh.run("return document.querySelectorAll('#pass-table tbody tr').length")
    fresh.click("#only-changed")
    assert fresh.run("return document.querySelectorAll('#pass-table tbody tr').length") > few


@needs_browser
def test_kernels_show_candidates_and_lead_to_the_graph(fresh: Browser) -> None:
    fresh.click("#tab-kernels")
    fresh.choose("#kernel-filter", "softmax")
    assert fresh.run("return document.getElementById('kernels-shown').textContent").startswith(f"{LAYERS} of ")
    fresh.click("#kernel-table tbody tr")
    assert "✓ softmax" in fresh.run("return document.querySelector('#kernel-table .more').innerText")
    fresh.click("#kernel-table .more .action")
    assert shown_panel(fresh) == ["graph"]
    assert fresh.run("return document.querySelector('#detail h2').textContent").startswith("Softmax")


@needs_browser
def test_tables_sort(fresh: Browser) -> None:
    fresh.click("#tab-profile")
    fresh.click("#step-table thead th:nth-child(2) button")
    values = fresh.run("return [...document.querySelectorAll('#step-table tbody tr')].map(r => r.cells[1].textContent)")
    assert len(values) > LAYERS
    fresh.click("#step-table thead th:nth-child(2) button")
    backwards = fresh.run(
        "return [...document.querySelectorAll('#step-table tbody tr')].map(r => r.cells[1].textContent)"
    )
    assert backwards == values[::-1]


@needs_browser
def test_memory_follows_the_cursor(fresh: Browser) -> None:
    fresh.click("#tab-memory")
    heading = "return document.getElementById('memory-step').textContent"
    assert "the peak, step " in fresh.run(heading)
    fresh.run("document.querySelector('#memory-chart svg').focus()")
    fresh.press("ArrowRight")
    moved = fresh.run(heading)
    assert "the peak" not in moved or "step 0" not in moved
    fresh.press("End")
    last = fresh.run(heading)
    fresh.press("ArrowRight")
    assert fresh.run(heading) == last
    fresh.press("p")
    assert "the peak, step " in fresh.run(heading)
    lives = fresh.run("return document.querySelectorAll('#memory-chart rect.life').length")
    assert lives == len([life for life in data_of_browser(fresh)["memory"][0]["lifetimes"] if life[4]])


def data_of_browser(window: Browser) -> Any:
    return window.run("return JSON.parse(document.getElementById('data').textContent)")


@needs_browser
def test_the_roofline_has_every_step_with_operations(fresh: Browser) -> None:
    fresh.click("#tab-profile")
    rows = [row for row in data_of_browser(fresh)["profile"]["rows"] if row["flops"] and row["bytes"]]
    assert fresh.run("return document.querySelectorAll('#roofline circle').length") == len(rows) > 0
    assert "100 GFLOP/s" in fresh.run("return document.getElementById('roofline').textContent")


@needs_browser
@pytest.mark.parametrize("width", [1440, 720, 390, 320])
def test_no_width_scrolls_sideways(fresh: Browser, width: int) -> None:
    fresh.resize(width)
    for name in ("graph", "passes", "kernels", "memory", "profile", "parity"):
        fresh.click(f"#tab-{name}")
        fresh.run(_SETTLED)
        assert fresh.run("return document.documentElement.scrollWidth") <= width, name
        out = fresh.run(_BEYOND)
        assert out == [], name


@needs_browser
def test_texts_have_contrast(fresh: Browser) -> None:
    """WCAG 2: at least 4.5 to 1 for text, in both schemes."""
    script = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        fresh.prefer(scheme)
        for name in ("graph", "passes", "kernels", "memory", "profile", "parity"):
            fresh.click(f"#tab-{name}")
            assert fresh.run(script) == [], (scheme, name)


@needs_browser
def test_light_and_dark(fresh: Browser) -> None:
    def paper() -> Any:
        return fresh.run("return getComputedStyle(document.body).backgroundColor")

    light = paper()
    fresh.prefer("dark")
    assert paper() != light
    fresh.click("#theme")
    assert paper() == light
    fresh.click("#theme")
    assert paper() != light


@needs_browser
def test_two_thousand_nodes_are_usable(large: Browser) -> None:
    """Less than two seconds of a processor pass until the page is interactive, and in anything one does with it."""
    large.run(_SETTLED)
    spent = [busy(large)]
    large.click("#fold")
    large.click("#zoom-fit")
    large.run(_SETTLED)
    spent.append(busy(large))
    large.run("document.getElementById('canvas').focus()")
    large.press("/")
    large.press(*"tanh", "Enter", "Enter")
    assert large.run("return document.getElementById('found').textContent") == f"2 of {MANY}"
    large.run(_SETTLED)
    spent.append(busy(large))
    for name in ("passes", "kernels", "memory", "profile"):
        large.click(f"#tab-{name}")
        large.run(_SETTLED)
        spent.append(busy(large))
    assert large.run("return document.querySelectorAll('#step-table tbody tr').length") == 200
    large.run("document.querySelector('#step-table tbody').lastChild.scrollIntoView()")
    large.run(_SETTLED)
    assert large.run("return document.querySelectorAll('#step-table tbody tr').length") >= 400
    assert large.run("return performance.getEntriesByName('interactive').length") == 1
    assert large.problems() == []
    assert 0 < spent[0] < 2
    assert max(after - before for before, after in pairwise(spent)) < 2
