"""Timing several sides in one process, in turn, so that none pays for what another one does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]

BURST_SECONDS = 0.1
"""A sample is the quickest of as many runs as fit into this, from FEWEST_RUNS to MOST_RUNS: other work on the machine
only ever adds."""
FEWEST_RUNS, MOST_RUNS = 2, 25
WARM_BELOW_SECONDS = 0.15
"""Before a sample of a network as fast as this comes a run that is not timed: the other side emptied the caches."""
TOTAL_SECONDS = 3.0
"""Fast networks get more rounds than asked for, until all rounds take about this, at most MOST_ROUNDS."""
MOST_ROUNDS = 31
_QUIET_SHARE = 0.1
_SLICE_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 1.0


def settle() -> float:
    """Wait until the process burns no more CPU time, and return the seconds that it took.

    Workers of BLAS (about 0.1 s) and of onnxruntime (about 2 ms) spin after their last work, and would take cores away
    from whoever runs next.
    """
    started = time.perf_counter()
    while (waited := time.perf_counter() - started) < _LONGEST_WAIT_SECONDS:
        before = time.process_time(), time.perf_counter()
        time.sleep(_SLICE_SECONDS)
        burnt, passed = time.process_time() - before[0], time.perf_counter() - before[1]
        if burnt < _QUIET_SHARE * passed:
            break
    return waited


def interleave(
    sides: Mapping[str, Call], rounds: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, list[float]]:
    """Seconds of a run by side, one sample a round; each round starts with another side.

    rounds: at least; see TOTAL_SECONDS.
    progress: told how many of how many rounds are done.
    """
    single = {name: _seconds_of_second_run(call) for name, call in sides.items()}
    runs = {name: runs_of_sample(seconds) for name, seconds in single.items()}
    rounds = rounds_for(rounds, sum(single[name] * (runs[name] + 1) for name in sides))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            settle()
            samples[name].append(_sample(sides[name], runs[name], single[name] < WARM_BELOW_SECONDS))
        progress(number + 1, rounds)
    return samples


def runs_of_sample(seconds: float) -> int:
    """How many runs of `seconds` make one sample."""
    return max(FEWEST_RUNS, min(MOST_RUNS, math.ceil(BURST_SECONDS / seconds)))


def rounds_for(asked: int, seconds: float) -> int:
    """How many rounds of `seconds` to make, when at least `asked` are wanted."""
    return max(asked, min(MOST_ROUNDS, math.floor(TOTAL_SECONDS / seconds)))


def _sample(call: Call, runs: int, warm: bool) -> float:
    if warm:
        call()
    return min(_seconds(call) for _ in range(runs))


def _seconds_of_second_run(call: Call) -> float:
    call()
    return _seconds(call)


def _seconds(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
