"""The garbage collector is as it was after compiling, however compilations nest."""

from __future__ import annotations

import gc
import weakref

import pytest

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


def test_what_stays_is_walked_by_a_full_round_only() -> None:
    class Item:
        other: Item

    one = Item()
    one.other = one
    gone = weakref.ref(one)
    keep_for_good()
    del one
    gc.collect(1)
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_the_process_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        keep_for_good()
        assert frozen > 0
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
