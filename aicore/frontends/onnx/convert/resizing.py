"""Upsample and Resize, whose coordinates opset 11 made explicit, and GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Value

_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@converts("Upsample")
def upsample(node: SourceNode) -> Results:
    """Scales are an attribute until opset 8; source coordinates are rounded towards zero."""
    scales = node.input(1)
    if scales is None:
        scales = node.constant(node.read("scales"), "float32")
    return _asymmetric(node, scales, "floor")


@converts("Resize", until=10)
def resize_by_scales(node: SourceNode) -> Results:
    """Opset 10 leaves the coordinates open; as its examples have it, nearest takes floor to enlarge, ceil to shrink."""
    scales = node.operand(1)
    if node.peek("mode") != "nearest":
        return _asymmetric(node, scales, "floor")
    known = scales.known
    if known is None:
        raise node.fail("nearest with scales that are computed needs opset 11, where the file says how to round")
    shrinks = known < 1
    if not shrinks.any() or shrinks.all() or (known[~shrinks] == 1).all():
        return _asymmetric(node, scales, "ceil" if shrinks.any() else "floor")
    node.read("mode")
    smaller = _nearest(node, node.operand(), np.where(shrinks, known, 1), "ceil")
    return _nearest(node, smaller, np.where(shrinks, 1, known), "floor")


@converts("Resize", since=11)
def resize(node: SourceNode) -> Results:
    """An empty tensor stands for an absent operand."""
    x, *others = node.inputs
    results: Results = node.build(x, *(None if _is_empty(value) else value for value in others))
    return results


def _asymmetric(node: SourceNode, scales: Value, rounding: str) -> Results:
    mode = node.read("mode")
    results: Results = node.build(
        node.operand(),
        None,
        scales,
        kind="Resize",
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=rounding,
    )
    return results


def _nearest(node: SourceNode, x: Value, scales: Any, rounding: str) -> Value:
    resized: Value = node.build(
        x,
        None,
        node.constant(scales, "float32"),
        kind="Resize",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode=rounding,
    )
    return resized


def _is_empty(value: Value | None) -> bool:
    return value is not None and value.shape is not None and value.shape == (0,)


@converts("GridSample", until=19)
def grid_sample(node: SourceNode) -> Results:
    """Opset 20 renamed the modes, as images may have more than two axes."""
    mode = node.read("mode")
    results: Results = node.build(*node.inputs, mode=_GRID_MODES.get(mode, mode))
    return results
