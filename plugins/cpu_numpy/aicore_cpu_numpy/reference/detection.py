"""Choosing among boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.detection import NonMaxSuppression

Array = np.ndarray[Any, Any]


@kernel(NonMaxSuppression, device="cpu")
def non_max_suppression(
    op: NonMaxSuppression,
    boxes: Array,
    scores: Array,
    limit: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
) -> Array:
    most = int(_number(op.max_output_boxes_per_class, limit, 0))
    overlap = _number(op.iou_threshold, iou_threshold, 0.0)
    least = _number(op.score_threshold, score_threshold, -np.inf)
    chosen = [
        (batch, label, box)
        for batch, label in np.ndindex(*scores.shape[:2])
        for box in _best(_corners(boxes[batch], bool(op.center_point_box)), scores[batch, label], most, overlap, least)
    ]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _best(corners: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """Greedily: the best box that is left, then without all that overlap it too much."""
    candidates = np.argsort(-scores, kind="stable")
    candidates = candidates[scores[candidates] >= least]
    kept: list[int] = []
    while len(candidates) and len(kept) < most:
        best, rest = candidates[0], candidates[1:]
        kept.append(int(best))
        candidates = rest[_overlaps(corners[best], corners[rest]) <= overlap]
    return kept


def _corners(boxes: Array, centred: bool) -> Array:
    """(N, 4): low corner, high corner."""
    a, b = boxes[:, :2], boxes[:, 2:]
    if centred:
        a, b = a - b / 2, a + b / 2
    return np.concatenate((np.minimum(a, b), np.maximum(a, b)), axis=1)


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union; 0 where the union has no area."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - shared
    ratio: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def _number(field: float | None, operand: Array | None, default: float) -> float:
    if field is not None:
        return field
    return default if operand is None else float(operand.item())


KERNELS: tuple[Kernel, ...] = (non_max_suppression,)
