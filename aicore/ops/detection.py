"""Choosing among boxes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim, unknown
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, need_rank, same_dim, same_dtype, shape_text
from aicore.ops.sizes import one_number


@op_class
class NonMaxSuppression(Simple):
    """The best boxes of each batch and class, without those that overlap a better one too much.

    boxes: (B, N, 4), two opposite corners y, x, y, x, or with center_point_box x, y, width, height. scores: (B, C, N).
    A box goes when its score is below `score_threshold`, or its intersection over union with a chosen one is above
    `iou_threshold`; at most `max_output_boxes_per_class` stay, none when that is not given.
    The result is (chosen, 3) int64: batch, class, box; the best first within a class. Equal scores keep their order.
    Source: ONNX NonMaxSuppression.
    """

    center_point_box: int = 0
    max_output_boxes_per_class: int | None = None
    iou_threshold: float | None = None
    score_threshold: float | None = None

    operand_fields: ClassVar[dict[int, str]] = {
        2: "max_output_boxes_per_class",
        3: "iou_threshold",
        4: "score_threshold",
    }

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        op, rest = super().absorb(*inputs)
        found = {name: one_number(getattr(op, name), name) for name in self.operand_fields.values()}
        return replace(op, **found), rest  # type: ignore[type-var]

    def infer(self, boxes: Value, scores: Value, *limits: Value | None) -> Types:
        same_dtype(boxes, scores)
        need_rank(boxes, 3)
        need_rank(scores, 3)
        for limit in limits:
            one = limit is None or limit.rank in (None, 0) or limit.shape == (1,)
            ensure(one, f"%{limit.name if limit else ''} is not one number")
        ratio = 0.0 if self.iou_threshold is None else self.iou_threshold
        ensure(0 <= ratio <= 1, f"iou_threshold is {ratio}, wants 0 to 1")
        if boxes.shape is not None and scores.shape is not None:
            fits = same_dim(boxes.shape[2], 4) and same_dim(boxes.shape[0], scores.shape[0])
            fits = fits and same_dim(boxes.shape[1], scores.shape[2])
            ensure(fits, f"boxes {shape_text(boxes.shape)} and scores {shape_text(scores.shape)} do not fit")
        return TensorType("int64", (unknown(), 3))

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        scores = inputs[1]
        return 0 if scores is None else scores.type.size, moved_bytes((), inputs)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        corners = rng.uniform(0, 10, (2, 12, 4)).astype(np.float32)
        sizes = np.abs(corners)
        scores = rng.uniform(0, 1, (2, 3, 12)).astype(np.float32)
        yield Sample(NonMaxSuppression(0, 4, 0.2, 0.3), (corners, scores))
        yield Sample(NonMaxSuppression(1, 9, 0.1), (sizes, scores), note="centres and sizes")
        yield Sample(NonMaxSuppression(), (corners, scores), note="no limit given: none chosen")
        yield Sample(NonMaxSuppression(0, 5, 0.5), (corners, scores * 0), note="equal scores")
        limits = (np.array([3], np.int64), np.array([0.4], np.float32), np.array([0.5], np.float32))
        yield Sample(NonMaxSuppression(), (corners, scores, *limits), note="limits known at run time only")
