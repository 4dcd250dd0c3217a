"""Real networks in int8 on real data: digits, a scanned page, and the types of files."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.program import Program
from aicore_int8_quant import QuantizedModel, quantize
from plugins.int8_quant.tests.layerwise import in_onnxruntime, layers
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


def test_another_runtime_agrees_layer_by_layer_on_digits(digit_model: QuantizedModel) -> None:
    _, (images, _) = digits()
    assert agreeing_layers(digit_model, images[:32]) >= 3


def agreeing_layers(model: QuantizedModel, x: Array) -> int:
    """How many tensors of codes onnxruntime computes as aicore does, each layer fed alike: at most one code apart."""
    count = 0
    for name, apart in layers(model.graph, {model.graph.inputs[0]: x}, in_onnxruntime):
        assert apart.max(initial=0) <= 1, name
        assert (apart > 0).mean() < 0.01, name
        count += 1
    return count


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
    assert agreeing_layers(model, page_feed(page, 1.0)) >= 60


TEXT = (
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    "markers = np.zeros_like(coins)",
)
"""What the page says inside of the boxes, which leave out a comma and a prompt."""


@pytest.mark.slow
def test_the_recogniser_still_reads_the_text(page: Array, boxes: list[Any]) -> None:
    """Lines cut out five ways, calibrated on two others: int8 reads every line that the float model reads.

    Spaces aside, and whether a bracket is the wide one of Chinese text. Where the float model errs ("nistogram"), int8
    may read anything, but no more of all characters wrong than the float model.
    """
    characters = alphabet(model_path("ppocr_rec"))
    exact = aicore.compile(model_path("ppocr_rec"), "cpu")
    model = quantize(model_path("ppocr_rec"), [*lines(page, boxes, 0.15), *lines(page, boxes, 0.55)])
    feeds = [line for margin in (0.25, 0.3, 0.35, 0.4, 0.45) for line in lines(page, boxes, margin)]
    truth = [plain_text(line) for line in TEXT] * 5
    before, after = (
        [plain_text(read_line(run(p, line)[0], characters)) for line in feeds] for p in (exact, model.compile("cpu"))
    )
    print("\n".join(f"{t} | {b} | {a}" for t, b, a in zip(truth, before, after, strict=True) if not t == b == a))
    print(model.coverage("cpu").summary())
    readable = [number for number, (one, two) in enumerate(zip(truth, before, strict=True)) if one == two]
    assert len(readable) >= 25
    assert [number for number in readable if after[number] != truth[number]] == []
    wrong_before, wrong_after = (sum(map(edits, truth, read)) for read in (before, after))
    assert wrong_after <= wrong_before
    assert model.coverage("cpu").share == 1
    assert agreeing_layers(model, feeds[0]) >= 50


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
    """Of files chosen by their suffixes alone, whatever magika makes of them; every fifth one is for calibration.

    2,000 for the test, every other one of them held to the bar by itself.
    """
    labels = json.loads(model_path("magika_config").read_text())["target_labels_space"]
    files = real_files(2500)
    feeds = np.stack([magika_feed(file) for file in files])
    of_calibration = np.arange(len(files)) % 5 == 0
    exact = aicore.compile(model_path("magika"), "cpu")
    data = feeds[of_calibration]
    model = quantize(model_path("magika"), [data[i : i + 16] for i in range(0, len(data), 16)])
    tested = feeds[~of_calibration]
    before = in_pieces(exact, tested, 16).argmax(1)
    after = in_pieces(model.compile("cpu"), tested, 16).argmax(1)
    types = Counter(labels[i] for i in before)
    assert len(tested) >= 2000
    assert sum(count >= 20 for count in types.values()) >= 10
    assert (before == after)[::2].mean() >= 0.98
    assert (before == after)[1::2].mean() >= 0.98
    assert agreeing_layers(model, tested[:2]) >= 2
    print(f"{(before == after).mean():.4f} of {len(tested)} files, {types.most_common(12)}")
    print(model.coverage("cpu").summary())
