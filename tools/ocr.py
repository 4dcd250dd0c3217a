"""Reading a scanned page with the PP-OCR models: the page, the boxes of a detection map, and the text of a line.

    page = read_grey_png(model_path("page"))
    boxes = find_boxes(detector.run({"x": page_feed(page)})["..."][0, 0], 0.3)

Plain NumPy, for tests and benchmarks that compare two versions of a model; the real client is in examples/ocr.py.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]
"""Top, left, bottom, right; the last two lie outside."""

LINE_HEIGHT = 48
"""What the recogniser takes."""


def read_grey_png(path: Path) -> Array:
    """Pixels (height, width) of an 8-bit grey PNG without interlacing. Raises ValueError for any other."""
    data, position, packed, header = path.read_bytes(), 8, b"", b""
    while position < len(data):
        size, kind = struct.unpack(">I4s", data[position : position + 8])
        content = data[position + 8 : position + 8 + size]
        header = content if kind == b"IHDR" else header
        packed += content if kind == b"IDAT" else b""
        position += 12 + size
    width, height, *rest = struct.unpack(">IIBBBBB", header)
    if rest != [8, 0, 0, 0, 0]:
        raise ValueError(f"{path} is no plain 8-bit grey PNG")
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width + 1)
    above, pixels = np.zeros(width, np.uint8), []
    for kind, *coded in rows.tolist():
        above = _unfiltered(kind, coded, above.tolist())
        pixels.append(above)
    return np.stack(pixels)


def _unfiltered(kind: int, coded: list[int], above: list[int]) -> Array:
    """One row of a PNG with one byte a pixel. Source: PNG specification, 9.2."""
    row: list[int] = []
    for i, byte in enumerate(coded):
        left, up, corner = (row[i - 1] if i else 0), above[i], (above[i - 1] if i else 0)
        row.append((byte + (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]) & 255)
    return np.array(row, np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def resized(pixels: Array, height: int, width: int) -> Array:
    """Bilinear, with pixel centres where they are, in float32."""
    rows, columns = _places(pixels.shape[0], height), _places(pixels.shape[1], width)
    x = pixels.astype(np.float32)
    low, high, share = rows
    x = x[low] * (1 - share[:, None]) + x[high] * share[:, None]
    low, high, share = columns
    found: Array = x[:, low] * (1 - share) + x[:, high] * share
    return found.astype(np.float32)


def _places(old: int, new: int) -> tuple[Array, Array, Array]:
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.floor(at).astype(int)
    return low, np.minimum(low + 1, old - 1), (at - low).astype(np.float32)


def as_feed(pixels: Array) -> Array:
    """(1, 3, height, width) in [-1, 1], the same in all three colours."""
    return np.repeat((pixels / 127.5 - 1).astype(np.float32)[None, None], 3, axis=1)


def page_feed(pixels: Array, scale: float = 2.0) -> Array:
    """The page for the detector, whose sides are multiples of 32."""
    height, width = (max(round(side * scale / 32), 1) * 32 for side in pixels.shape)
    return as_feed(resized(pixels, height, width))


def line_feed(pixels: Array) -> Array:
    """A line of text for the recogniser."""
    width = max(round(pixels.shape[1] * LINE_HEIGHT / pixels.shape[0]), 16)
    return as_feed(resized(pixels, LINE_HEIGHT, width))


def find_boxes(probability: Array, threshold: float = 0.3, smallest: int = 40) -> list[Box]:
    """Boxes around the connected parts of a map that are above the threshold, from top to bottom.

    smallest: pixels that a part must have.
    """
    labels = _connected(probability > threshold)
    boxes = []
    for label in np.unique(labels[labels > 0]):
        rows, columns = np.nonzero(labels == label)
        if rows.size >= smallest:
            boxes.append((int(rows.min()), int(columns.min()), int(rows.max()) + 1, int(columns.max()) + 1))
    return sorted(boxes)


def _connected(mask: Array) -> Array:
    """A number for each part that hangs together, sideways and up and down: the largest one spreads until all agree."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        spread = np.pad(labels, 1)
        neighbours = (spread[:-2, 1:-1], spread[2:, 1:-1], spread[1:-1, :-2], spread[1:-1, 2:])
        larger = np.where(mask, np.maximum.reduce([labels, *neighbours]), 0)
        larger = np.where(mask, larger.ravel()[np.maximum(larger, 1) - 1], 0)  # a shortcut along what is known
        if np.array_equal(larger, labels):
            return labels
        labels = larger


def grown(box: Box, shape: tuple[int, int], share: float = 0.35) -> Box:
    """The box with a margin of that share of its height: the detector marks the core of a line."""
    top, left, bottom, right = box
    margin = round((bottom - top) * share)
    return max(top - margin, 0), max(left - margin, 0), min(bottom + margin, shape[0]), min(right + margin, shape[1])


def overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    height = min(one[2], other[2]) - max(one[0], other[0])
    width = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(height, 0) * max(width, 0)
    areas = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    return shared / (areas - shared)


def alphabet(model: Path) -> list[str]:
    """The characters of a recogniser, from its file: nothing first, a space last."""
    metadata = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
    return ["", *metadata["character"].splitlines(), " "]


def read_line(scores: Array, characters: list[str]) -> str:
    """The text of (steps, characters) scores: the best one of each step, repetitions and nothings left out."""
    best = scores.argmax(-1)
    kept = best[np.concatenate([[True], best[1:] != best[:-1]])]
    return "".join(characters[i] for i in kept)
