"""Blocks that repeat, as a reader would see them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicore.report.blocks import Repetition, repeated_blocks


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ("", []),
        ("abcdef", []),
        ("aaaaaa", []),
        ("sababab!", [(1, 2, 3)]),
        ("abcabc", [(0, 3, 2)]),
        ("s" + "abc" * 5 + "p" + "de" * 4 + "z", [(1, 3, 5), (17, 2, 4)]),
        ("abab" + "x" + "abab", [(0, 2, 2), (5, 2, 2)]),
        ("aabaab", [(0, 3, 2)]),
    ],
)
def test_what_is_found(kinds: str, found: list[tuple[int, int, int]]) -> None:
    assert [(one.start, one.length, one.count) for one in repeated_blocks(kinds)] == found


def test_three_alike_go_before_two_long_ones() -> None:
    """Two stages of four layers each are eight layers with something between them, not two stages."""
    stage = "p" + "abc" * 4
    assert [(one.length, one.count) for one in repeated_blocks(stage * 2)] == [(3, 4), (3, 4)]


@given(st.text("ab-", max_size=60))
def test_repetitions_repeat_and_do_not_overlap(kinds: str) -> None:
    end = 0
    for one in repeated_blocks(kinds):
        assert one.start >= end
        assert one.count >= 2
        assert one.length >= 2
        block = kinds[one.start : one.start + one.length]
        assert kinds[one.start : one.end] == block * one.count
        end = one.end


def test_two_thousand_nodes_of_all_kinds() -> None:
    kinds = np.random.default_rng(0).integers(0, 50, 2000).tolist()
    assert all(isinstance(one, Repetition) for one in repeated_blocks(kinds))
