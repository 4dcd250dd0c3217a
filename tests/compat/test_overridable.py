"""Initializers that a model lists as inputs: feeds replace them, as in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as real
import pytest

from tests.compat.client import session
from tests.frontends.models import FLOAT, model, node, tensor

ONES = np.ones(2, np.float32)


def listed(ir: int) -> bytes:
    inputs = [tensor("x", FLOAT, ["N"]), tensor("w", FLOAT, [1]), tensor("b", FLOAT, [1])]
    nodes = [node("Mul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])]
    constants = {"w": np.array([2], np.float32), "b": np.array([3], np.float32), "unlisted": ONES}
    made = model([*nodes, node("Add", ["y", "unlisted"], ["z"])], inputs, [tensor("z", FLOAT, ["N"])], constants, ir=ir)
    return made.SerializeToString()


@pytest.mark.parametrize("ir", [3, 8])
def test_they_are_told(ours: Any, ir: int) -> None:
    content = listed(ir) if ir > 3 else listed(8).replace(b"\x08\x08", b"\x08\x03", 1)
    theirs, mine = session(real, content), session(ours, content)
    for ask in ("get_inputs", "get_overridable_initializers"):
        answers = [[(n.name, n.type, n.shape) for n in getattr(s, ask)()] for s in (theirs, mine)]
        assert answers[0] == answers[1]


def test_feeds_replace_them(ours: Any) -> None:
    theirs, mine = session(real, listed(8)), session(ours, listed(8))
    for extra in ({}, {"w": 5}, {"b": 7}, {"w": 5, "b": 7}, {}):
        feeds = {"x": ONES, **{name: np.array([number], np.float32) for name, number in extra.items()}}
        np.testing.assert_array_equal(mine.run(None, feeds)[0], theirs.run(None, feeds)[0])


def test_what_is_not_listed_stays(ours: Any) -> None:
    with pytest.raises(Exception, match="unlisted"):
        session(ours, listed(8)).run(None, {"x": ONES, "unlisted": ONES})
