"""What `fit` shows: a bar where there is a terminal, a line for each epoch where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Verbose: TypeAlias = "bool | Literal['auto']"


class Show(AbstractContextManager["Show"]):
    """verbose: False for nothing, True or `auto` for a bar on a terminal, else lines."""

    def __init__(self, verbose: Verbose, epochs: int) -> None:
        self._console = Console(stderr=True)
        self._says = bool(verbose)
        self._epochs = epochs
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self._console,
        )
        self._task: TaskID | None = None

    @property
    def _is_live(self) -> bool:
        return self._says and self._console.is_terminal

    def __enter__(self) -> Show:
        if self._is_live:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_live:
            self._bar.stop()

    def begin(self, epoch: int, samples: int | None, seen: int) -> None:
        """An epoch of so many samples, of which some are done already."""
        if self._is_live:
            name = f"epoch {epoch}/{self._epochs}"
            self._task = self._bar.add_task(name, total=samples, completed=seen, numbers="")

    def step(self, seen: int, logs: Mapping[str, float]) -> None:
        if self._is_live and self._task is not None:
            self._bar.update(self._task, completed=seen, numbers=_text(logs))

    def end(self, epoch: int, seen: int, seconds: float, logs: Mapping[str, float]) -> None:
        if self._is_live and self._task is not None:
            self._bar.update(self._task, completed=seen, total=seen, numbers=_text(logs))
        elif self._says:
            self._console.print(f"epoch {epoch}/{self._epochs}: {seconds:.1f} s, {_text(logs)}", highlight=False)


def _text(logs: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in logs.items())
