"""A process that may break: `python -m tests.fuzz.child CASES` runs cases under limits, and says what came of each.

CASES is a function `module:name` followed by its arguments, which gives (label, model, feeds). Each case is announced
before it runs, so that the parent knows which one a crash or a hang belongs to. Output: one JSON object on each line.
"""

from __future__ import annotations

import importlib
import json
import logging
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import aicore
import aicore_cpu_numpy.plugin
import aicore_fake_gpu.plugin
from aicore.config import Config
from aicore.errors import AicoreError
from aicore.ir import TensorType, numpy_dtype
from aicore.plugins import PluginRegistry

ADDRESS_SPACE = 6 << 30
"""Bytes; without it, a case that takes all memory would take the machine with it."""
SECONDS = 20
"""Of processor time for one case."""
_MOST_ELEMENTS = 3_000_000


class Late(BaseException):
    """A case took too long."""


def main(function: str, *arguments: str) -> None:
    module, _, name = function.partition(":")
    cases: Iterator[tuple[str, Any, dict[str, Any]]] = getattr(importlib.import_module(module), name)(*arguments)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGPROF, _late)
    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": aicore_fake_gpu.plugin}
    registry = PluginRegistry.from_modules(plugins, config=Config())
    for number, (label, model, feeds) in enumerate(cases):
        _say(start=label)
        started, memory = time.process_time(), _peak()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome, detail = _outcome(model, feeds, registry, "fake" if number % 4 == 3 else "cpu")
        except Late:
            outcome, detail = "late", f"over {SECONDS} seconds"
        signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - started
        _say(end=label, outcome=outcome, detail=detail, seconds=seconds, grown=_peak() - memory)


def _outcome(model: Any, feeds: dict[str, Any], registry: PluginRegistry, target: str) -> tuple[str, str]:
    """`ran`, `refused` with a typed error, or `escaped` with another one."""
    try:
        program = aicore.compile(model, target, registry=registry, fallback="quiet")
        given = {name: feeds[name] if name in feeds else _some(tensor) for name, tensor in program.inputs.items()}
        program.run(given)
        str(program.explain())
    except AicoreError as error:
        return "refused", f"{type(error).__name__}: {error}"[:1000]
    except Exception as error:  # noqa: BLE001  # this is what the test looks for
        return "escaped", f"{type(error).__name__}: {error}"[:1000]
    return "ran", ""


def _some(tensor: TensorType) -> Any:
    dims = (2, 3) if tensor.shape is None else tensor.shape
    shape = tuple(dim if isinstance(dim, int) else 2 for dim in dims)
    if np.prod([float(dim) for dim in shape]) > _MOST_ELEMENTS or len(shape) > 32:
        shape = (1,)  # a wrong shape, which the program has to say
    if tensor.dtype == "string":
        return np.full(shape, "a", object)
    return np.random.default_rng(0).integers(0, 5, shape).astype(numpy_dtype(tensor.dtype))


def _peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _late(*_: Any) -> None:
    raise Late


def _say(**row: Any) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
