"""Real networks in int8 on real data: digits, a scanned page, and the types of files."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import onnxruntime
import pytest

import aicore
from aicore.frontends.onnx import export_model
from aicore.ir import Graph, Value
from aicore.program import Program
from aicore_int8_quant import QuantizedModel, quantize
from tools.digits import FILE, digits
from tools.models import model_path
from tools.ocr import (
    alphabet,
    find_boxes,
    grown,
    line_feed,
    overlap,
    page_feed,
    read_grey_png,
    read_line,
    resized,
)
from tools.real_files import magika_feed, real_files

Array = np.ndarray[Any, Any]


def run(program: Program, array: Array) -> Array:
    (name,) = program.inputs
    return next(iter(program.run({name: array}).values()))


def in_pieces(program: Program, array: Array, size: int) -> Array:
    return np.concatenate([run(program, array[i : i + size]) for i in range(0, len(array), size)])


@pytest.fixture(scope="module")
def digit_model() -> QuantizedModel:
    (images, _), _ = digits()
    return quantize(FILE, [images[i : i + 64] for i in range(0, 640, 64)])


def test_digits_are_read_as_before(digit_model: QuantizedModel) -> None:
    _, (images, labels) = digits()
    exact = (in_pieces(aicore.compile(FILE, "cpu"), images, 449).argmax(1) == labels).mean()
    quantized = (in_pieces(digit_model.compile("cpu"), images, 449).argmax(1) == labels).mean()
    assert FILE.stat().st_size < 200_000
    assert exact > 0.97
    assert quantized >= exact - 0.005
    assert digit_model.coverage("cpu").share == 1
    print(f"float {exact:.4f}, int8 {quantized:.4f}\n{digit_model.coverage('cpu').summary()}")


def test_another_runtime_agrees_layer_by_layer(digit_model: QuantizedModel) -> None:
    """Every tensor of codes is at most one code apart, each layer being fed what it has in aicore.

    onnxruntime's fused kernels saturate where products of u8 and s8 add up, so its optimiser is off: it multiplies the
    dequantised numbers, in float32.
    """
    _, (images, _) = digits()
    graph = digit_model.graph
    quantized = [node for node in graph.nodes if type(node.op).__name__ == "QuantizeLinear"]
    codes = [node.outputs[0] for node in quantized]
    ours = compute(graph, codes, {graph.inputs[0]: images[:32]})
    layers = 0
    for previous, value in pairwise(codes):
        part = between(graph, [v for v in codes if v in earlier(graph, previous)], value)
        theirs = in_onnxruntime(part, {v: ours[v] for v in part.inputs})
        apart = np.abs(ours[value].astype(int) - theirs.astype(int))
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.01
        layers += 1
    assert layers >= 4


def earlier(graph: Graph, value: Value) -> set[Value]:
    """The value and all that are made before it."""
    found: set[Value] = set()
    for node in graph.nodes:
        found.update(node.outputs)
        if value in node.outputs:
            return found
    return found


def between(graph: Graph, given: list[Value], value: Value) -> Graph:
    """The part of the graph that computes a value from codes that are given."""
    wanted, nodes = {value}, []
    for node in reversed(graph.nodes):
        if wanted.isdisjoint(node.outputs) or not set(node.outputs).isdisjoint(given):
            continue
        nodes.append(node)
        wanted.update(v for v in node.inputs if v is not None)
    inputs = tuple(v for v in given if v in wanted)
    return Graph(inputs, (("y", value),), tuple(nodes[::-1]))


def compute(graph: Graph, values: list[Value], feeds: dict[Value, Array]) -> dict[Value, Array]:
    """The fused int8 program's numbers for tensors of codes."""
    outputs = tuple((f"v{i}", v) for i, v in enumerate(values))
    program = aicore.compile(Graph(graph.inputs, outputs, graph.nodes), "cpu")
    found = program.run({v.name: a for v, a in feeds.items()})
    return {v: found[f"v{i}"] for i, v in enumerate(values)}


def in_onnxruntime(graph: Graph, feeds: dict[Value, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = export_model(graph, 21)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = dict(zip((i.name for i in session.get_inputs()), feeds.values(), strict=True))
    found: Array = session.run(None, given)[0]
    return found


@pytest.fixture(scope="module")
def page() -> Array:
    return read_grey_png(model_path("page"))


@pytest.fixture(scope="module")
def boxes(page: Array) -> list[Any]:
    return find_boxes(run(aicore.compile(model_path("ppocr_det"), "cpu"), page_feed(page))[0, 0])


def lines(page: Array, boxes: list[Any], margin: float) -> list[Array]:
    """The lines of the page, cut out of an enlarged one; the boxes are those of a page twice as large."""
    large = resized(page, 4 * page.shape[0], 4 * page.shape[1])
    shape = (2 * page.shape[0], 2 * page.shape[1])
    parts = [tuple(2 * side for side in grown(box, shape, margin)) for box in boxes]
    return [line_feed(large[top:bottom, left:right]) for top, left, bottom, right in parts]


@pytest.mark.slow
def test_the_detector_finds_the_same_lines(page: Array, boxes: list[Any]) -> None:
    assert len(boxes) == 7
    model = quantize(model_path("ppocr_det"), [page_feed(page, scale) for scale in (1.5, 2.5)])
    found = find_boxes(run(model.compile("cpu"), page_feed(page))[0, 0])
    assert len(found) == len(boxes)
    assert min(max(overlap(box, other) for other in found) for box in boxes) > 0.9
    assert model.coverage("cpu").share > 0.95
    print(model.coverage("cpu").summary())


@pytest.mark.slow
def test_the_recogniser_reads_the_same_text(page: Array, boxes: list[Any]) -> None:
    """Lines cut out three ways, calibrated on two others; measured: lines that are equal, and characters that are.

    Spaces aside, and whether a bracket is the wide one of Chinese text. Where they differ, int8 may be the one that is
    right: the float model reads "nistogram" at the smallest margin.
    """
    characters = alphabet(model_path("ppocr_rec"))
    exact = aicore.compile(model_path("ppocr_rec"), "cpu")
    model = quantize(model_path("ppocr_rec"), [*lines(page, boxes, 0.15), *lines(page, boxes, 0.55)])
    feeds = [line for margin in (0.25, 0.35, 0.45) for line in lines(page, boxes, margin)]
    before, after = (
        [plain_text(read_line(run(p, line)[0], characters)) for line in feeds] for p in (exact, model.compile("cpu"))
    )
    assert before[14] == after[14] == "Region-basedsegmentation"
    assert before[19] == after[19] == "histogramofgreyvalues:"
    changes = sum(edits(one, other) for one, other in zip(before, after, strict=True))
    equal = sum(one == other for one, other in zip(before, after, strict=True))
    print(f"{equal} of {len(feeds)} lines, {changes} of {sum(map(len, before))} characters differ")
    print("\n".join(f"{one} | {other}" for one, other in zip(before, after, strict=True) if one != other))
    print(model.coverage("cpu").summary())
    assert equal >= 20
    assert changes <= 0.005 * sum(map(len, before))
    assert model.coverage("cpu").share == 1


def plain_text(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split())


def edits(one: str, other: str) -> int:
    """Characters to insert, delete or exchange: Levenshtein's distance."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        above, row = row, [i]
        for j, theirs in enumerate(other, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (mine != theirs)))
    return row[-1]


@pytest.mark.slow
def test_files_have_the_same_types() -> None:
    """Of files chosen by their suffixes alone, whatever magika makes of them; every fifth one is for calibration."""
    labels = json.loads(model_path("magika_config").read_text())["target_labels_space"]
    files = real_files(1250)
    feeds = np.stack([magika_feed(file) for file in files])
    of_calibration = np.arange(len(files)) % 5 == 0
    exact = aicore.compile(model_path("magika"), "cpu")
    data = feeds[of_calibration]
    model = quantize(model_path("magika"), [data[i : i + 16] for i in range(0, len(data), 16)])
    tested = feeds[~of_calibration]
    before = in_pieces(exact, tested, 16).argmax(1)
    after = in_pieces(model.compile("cpu"), tested, 16).argmax(1)
    types = Counter(labels[i] for i in before)
    assert len(tested) >= 1000
    assert sum(count >= 20 for count in types.values()) >= 10
    assert (before == after).mean() >= 0.98
    print(f"{(before == after).mean():.4f} of {len(tested)} files, {types.most_common(12)}")
    print(model.coverage("cpu").summary())
