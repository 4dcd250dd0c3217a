"""Python's cyclic garbage collector rests while a graph is compiled, and while modules and plugins are loaded.

Compiling makes many objects that live on and refer to each other. The collector would walk all of them again and again,
in time that grows faster than the graph: 10,000 nodes took 1.4 times as long with it as without.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0
_wakes = False
_modules = 0
"""How many were imported when the collector was last told of them."""


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Switch the collector off, and on again when the last thread that compiles has left, if it was on before."""
    global _resting, _wakes  # noqa: PLW0603  # the collector is one per process
    with _lock:
        if not _resting:
            _wakes = gc.isenabled()
            gc.disable()
        _resting += 1
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting and _wakes:
                gc.enable()


def keep_for_good() -> None:
    """Tell the collector that what was made so far stays, if modules were imported since the last call.

    Its next round would walk all of it, which takes as long as importing fifty modules. What is told so is still freed
    by a full round of the collector, which it puts off. So it must not be told of everything a program makes in a loop.
    Nothing happens in a process that froze objects itself, which it would undo.
    """
    global _modules
    known, _modules = _modules, max(_modules, len(sys.modules))
    if known == _modules or gc.get_freeze_count():
        return
    try:
        gc.freeze()
    finally:  # whatever interrupts it, since nothing would ever be freed
        gc.unfreeze()  # into the oldest generation
