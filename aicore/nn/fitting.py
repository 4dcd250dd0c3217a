"""The loop over epochs and batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.errors import InputError
from aicore.nn.callbacks import Callback, ModelCheckpoint
from aicore.nn.data import Samples, count_of, order_of
from aicore.nn.history import History
from aicore.nn.progress_bar import Show, Verbose
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.nn.model import Model

Batches: TypeAlias = "Iterable[tuple[Any, Any]]"
"""Gives (x, y) anew each time it is iterated."""


@dataclass(frozen=True)
class Fit:
    """What `Model.fit` was asked for. until: the epoch that is to be the last."""

    until: int
    batch_size: int
    shuffle: bool
    callbacks: Sequence[Callback]
    verbose: Verbose


def run_fit(model: Model, data: Samples | Batches, validation: Samples | None, wanted: Fit) -> History:
    """See `Model.fit`; goes on from the model's progress."""
    count_of("batch_size", wanted.batch_size)
    callbacks = sorted(wanted.callbacks, key=lambda one: isinstance(one, ModelCheckpoint))
    model.get_ready(data if isinstance(data, Samples) else first_batch(model, data))
    model.follow(wanted.callbacks)
    with ExitStack() as ends:  # each is told of the end, also when another one fails
        for callback in reversed(callbacks):
            ends.callback(callback.on_train_end, model)
        for callback in callbacks:
            callback.on_train_begin(model)
        with Show(wanted.verbose, wanted.until) as show:
            while model.progress.epoch < wanted.until and not model.stopped:
                _run_epoch(model, data, validation, wanted, callbacks, show)
    return model.history


def _run_epoch(
    model: Model,
    data: Samples | Batches,
    validation: Samples | None,
    wanted: Fit,
    callbacks: Sequence[Callback],
    show: Show,
) -> None:
    start = time.perf_counter()
    progress = model.progress
    epoch = progress.epoch + 1
    sums = dict(progress.sums or {})
    show.begin(epoch, data.count if isinstance(data, Samples) else None, progress.seen)
    logs: dict[str, float] = {}
    for batch in _batches(model, data, wanted):
        found = model.train_step(batch)
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + value * batch.count
        seen = model.progress.seen + batch.count
        model.progress = replace(model.progress, seen=seen, sums=dict(sums))
        logs = {name: total / seen for name, total in sums.items()}
        show.step(seen, logs)
        for callback in callbacks:
            callback.on_step_end(model, model.progress.step, found)
    seen = model.progress.seen
    if not seen:
        raise InputError("there is no batch to train on")
    logs = {name: total / seen for name, total in sums.items()}
    if validation is not None:
        found = model.evaluate_samples(validation, max(wanted.batch_size, 256))
        logs |= {f"val_{name}": value for name, value in found.items()}
    model.progress = replace(model.progress, epoch=epoch, seen=0, sums=None)
    model.history.add(logs)
    show.end(epoch, seen, time.perf_counter() - start, logs)
    for callback in callbacks:
        callback.on_epoch_end(model, epoch, logs)


def _batches(model: Model, data: Samples | Batches, wanted: Fit) -> Iterator[Samples]:
    """Those of the epoch that are still to come."""
    seen = model.progress.seen
    if isinstance(data, Samples):
        order = order_of(data.count, model.seed, model.progress.epoch) if wanted.shuffle else None
        batches: Iterable[Samples] = data.batches(wanted.batch_size, order)
    else:
        batches = (model.samples_of(batch) for batch in data)
    for batch in batches:
        if seen >= batch.count:
            seen -= batch.count
            continue
        if seen:
            raise InputError(f"{seen} samples of the epoch were seen, which is no whole batch: batches differ now")
        yield batch
    if seen:
        raise InputError(f"{seen} more samples of the epoch were seen than there are now: the data differ")


def first_batch(model: Model, data: Batches) -> Samples:
    """The first one. Raises InputError where there is none, and for an iterator, which would be used up with it."""
    if isinstance(data, Iterator):
        raise InputError(
            f"a {type(data).__name__} gives its batches once; pass a list, or what gives them anew each time"
        )
    for batch in data:
        return model.samples_of(batch)
    raise InputError("there is no batch to train on")
