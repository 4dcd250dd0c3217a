"""The garbage collector is as it was after compiling, however compilations nest."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import onnx.parser
import pytest

import aicore
from aicore import collector
from aicore.collector import collector_at_rest, keep_for_good


def test_it_rests_until_the_last_one_leaves() -> None:
    assert gc.isenabled()
    with collector_at_rest():
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_wakes_it() -> None:
    with pytest.raises(ZeroDivisionError), collector_at_rest():
        _ = 1 // 0
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


class Item:
    """It refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def more_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if something had been imported."""
    monkeypatch.setattr(collector, "_modules", len(sys.modules) - 1)


def test_what_stays_is_walked_by_a_full_round_only(more_modules: None) -> None:
    gone = weakref.ref(Item())
    keep_for_good()
    gc.collect(1)
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_is_made_in_a_loop_is_not_told_to_stay() -> None:
    keep_for_good()
    gone = weakref.ref(Item())
    keep_for_good()
    gc.collect(1)
    assert gone() is None


def test_reading_models_in_a_loop_keeps_no_garbage() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    aicore.load(model)
    gone = weakref.ref(Item())
    aicore.load(model)
    gc.collect(1)
    assert gone() is None


def test_an_interrupt_leaves_nothing_frozen(more_modules: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(freeze: Callable[[], None] = gc.freeze) -> None:
        freeze()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "freeze", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keep_for_good()
    assert gc.get_freeze_count() == 0


def test_what_the_process_froze_stays_frozen(more_modules: None) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        keep_for_good()
        assert frozen > 0
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
