"""The two sides of the comparison: a model file made ready by aicore, or by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from aicore.config import TunePolicy
    from aicore.tuning import Measure
    from tools.zoo import Array, Feeds  # imports onnx, whose import start_up counts as time to load

Run: TypeAlias = "Callable[[], list[Array]]"
"""One inference, with the inputs fixed; the outputs in the model's order."""


@dataclass(frozen=True)
class Settings:
    """What both sides are made with.

    tune: `off`, `cached` or `measure`, for aicore only. budget: seconds for measuring; None means aicore's own.
    """

    threads: int = 2
    tune: TunePolicy = "off"
    budget: float | None = None


def open_aicore(model: Path, settings: Settings, tuned: Callable[[int, int], None] | None = None) -> Any:
    """The program of an ONNX file.

    tuned: told how many of how many problems are measured, on the first run, when settings ask for that.
    """
    import aicore

    tune = how_to_measure(settings.budget, tuned) if settings.tune == "measure" else settings.tune
    return aicore.compile(model, target="cpu", fallback="error", threads=settings.threads, tune=tune)


def how_to_measure(budget: float | None, tuned: Callable[[int, int], None] | None) -> Measure:
    """What `aicore.compile` takes to measure within `budget` seconds (None: its default) and to tell how far it is."""
    from aicore.tuning import Measure

    done = total = 0

    def started(problems: Sequence[Any]) -> None:
        nonlocal total
        total += len(problems)

    def finished(_: Any) -> None:
        nonlocal done
        done += 1
        if tuned is not None:
            tuned(done, total)

    wanted = Measure(started=started, finished=finished)
    return wanted if budget is None else replace(wanted, budget=budget)


def open_onnxruntime(model: Path | bytes, settings: Settings, spinning: bool = True) -> Any:
    """The session of an ONNX file; its errors only in the log.

    spinning: onnxruntime's default; its workers wait for work in a busy loop for a moment.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def read_feeds(path: Path) -> Feeds:
    """The inputs that `write_network` wrote."""
    with np.load(path) as stored:
        return dict(stored)


def aicore_run(program: Any, feeds: Feeds) -> Run:
    return lambda: list(program.run(feeds).values())


def onnxruntime_run(session: Any, feeds: Feeds) -> Run:
    return lambda: list(session.run(None, feeds))


@dataclass(frozen=True)
class Difference:
    """How far outputs are apart, each the worst of all outputs.

    relative: norm of the difference over the norm of the expected output.
    largest: largest difference of one element, over the largest element.
    spread: the smallest standard deviation of an expected output; a constant output would prove nothing.
    """

    relative: float
    largest: float
    spread: float


def compare(ours: list[Array], expected: list[Array]) -> Difference:
    """Raises ValueError when the outputs differ in number, shape or dtype, or are not finite."""
    if [(a.shape, a.dtype) for a in ours] != [(b.shape, b.dtype) for b in expected]:
        raise ValueError(f"outputs differ in type: {[a.shape for a in ours]} and {[b.shape for b in expected]}")
    rows = [_compare(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(ours, expected, strict=True)]
    return Difference(max(r.relative for r in rows), max(r.largest for r in rows), min(r.spread for r in rows))


def _compare(ours: Array, expected: Array) -> Difference:
    if not (np.isfinite(ours).all() and np.isfinite(expected).all()):
        raise ValueError("an output is not finite, so that nothing can be compared")
    off = ours - expected
    tiny = np.finfo(np.float64).tiny
    relative = np.linalg.norm(off.ravel()) / max(np.linalg.norm(expected.ravel()), tiny)
    largest = np.abs(off).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), tiny)
    return Difference(float(relative), float(largest), float(expected.std()))
