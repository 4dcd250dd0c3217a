"""The garbage collector is as it was after compiling, however compilations nest."""

from __future__ import annotations

import gc

import pytest

from aicore.collector import collector_at_rest


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
