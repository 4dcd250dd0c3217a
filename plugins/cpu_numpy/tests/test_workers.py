"""Threads that share a kernel's work: all of it is done, errors come back, and the process's BLAS is left as it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from aicore_cpu_numpy.fast._parallel import HEAD_START, shares
from aicore_cpu_numpy.workers import Workers, blas_libraries, run_tasks, single_threaded_blas


def noting(places: list[int], index: int) -> Callable[[], None]:
    def task() -> None:
        places[index] += 1

    return task


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_every_task_runs_once(count: int) -> None:
    places = [0] * count
    for _ in range(20):
        run_tasks([noting(places, i) for i in range(count)])
    assert places == [20] * count


def test_tasks_run_in_threads_of_their_own_and_the_last_one_here() -> None:
    names = [""] * 3
    both = threading.Barrier(3, timeout=20)

    def task(index: int) -> None:
        names[index] = threading.current_thread().name
        both.wait()  # would time out if one ran after the other

    Workers().run([lambda: task(0), lambda: task(1), lambda: task(2)])
    assert names == ["aicore-0", "aicore-1", threading.current_thread().name]


@pytest.mark.parametrize("failing", [0, 1])
def test_what_a_task_raises_is_raised_once_all_have_ended(failing: int) -> None:
    done = [0, 0]
    workers = Workers()

    def fail() -> None:
        raise ValueError("no such block")

    tasks: list[Callable[[], None]] = [noting(done, 0), noting(done, 1)]
    with pytest.raises(ValueError, match="no such block"):
        workers.run([fail if i == failing else task for i, task in enumerate(tasks)])
    assert done[1 - failing] == 1
    workers.run(tasks)  # nothing is left of the error
    assert done == [1 + (failing == 1), 1 + (failing == 0)]


def test_a_run_that_finds_the_threads_busy_does_its_tasks_itself() -> None:
    workers, done, names = Workers(), [0, 0], []

    def nested() -> None:
        workers.run([lambda: names.append(threading.current_thread().name), noting(done, 0)])

    workers.run([noting(done, 1), nested])
    assert done == [1, 1]
    assert names == [threading.current_thread().name]


@pytest.fixture(params=["main", "another"])
def in_thread(request: pytest.FixtureRequest) -> Callable[[Callable[[], None]], None]:
    """Calls a function in the main thread, or in one that is no owner of anything."""

    def call(function: Callable[[], None]) -> None:
        if request.param == "main":
            function()
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(function).result()

    return call


def test_blas_keeps_to_one_thread_inside_and_goes_back_to_what_it_was(in_thread: Any) -> None:
    np.zeros((2, 2)) @ np.zeros((2, 2))
    libraries = blas_libraries()
    before = [library.count() for library in libraries]
    assert libraries, "NumPy's BLAS is not known to threadpoolctl"

    def check() -> None:
        for library in libraries:
            library.limit(2)
        with single_threaded_blas():
            with single_threaded_blas():
                assert [library.count() for library in libraries] == [1] * len(libraries)
            assert [library.count() for library in libraries] == [1] * len(libraries)
        assert [library.count() for library in libraries] == [2] * len(libraries)

    with single_threaded_blas():
        pass  # the main thread was here first
    try:
        in_thread(check)
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.limit(count)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    run_tasks([lambda: None, lambda: None])  # the parent's threads exist, and the child does not inherit them
    child = os.fork()
    if child == 0:
        done = [0, 0]
        run_tasks([noting(done, 0), noting(done, 1)])
        os._exit(0 if done == [1, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_caller_has_more_to_do_by_what_it_does_before_the_others_begin() -> None:
    work = 4 * HEAD_START
    assert shares(80, 2, work) == [(0, 30), (30, 80)]  # one begins 1 later and takes 1.5, the caller takes 2.5
    assert shares(80, 2, 1.0) == [(0, 40), (40, 80)]
    assert shares(80, 1, work) == [(0, 80)]
    assert shares(80, 2, HEAD_START / 2) == [(0, 80)]  # done before anybody else has begun


@pytest.mark.parametrize("total", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("seconds", [0.0, 3 * HEAD_START, 1.0])
def test_shares_cover_all_without_empty_ones(total: int, parts: int, seconds: float) -> None:
    found = shares(total, parts, seconds)
    assert [i for start, stop in found for i in range(start, stop)] == list(range(total))
    assert all(start < stop for start, stop in found)
    assert len(found) <= parts
