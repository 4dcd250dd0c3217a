"""Calibration data from files: .npz and .npy, one or a folder of them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aicore.errors import InputError
from aicore.ir import Graph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DataFiles:
    """Batches from files, read one after another and again each time; nothing is unpickled.

    path: a .npz file with an array for each input, a .npy file for a model of one input, or a folder of either, read in
        the order of their names. Arrays with one dim more than the input are several batches.
    Raises InputError for a file that cannot be read, and for a folder without any.
    """

    path: Path
    graph: Graph

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for file in self.files():
            yield from self._batches(file)

    def __length_hint__(self) -> int:
        return len(self.files())

    def files(self) -> list[Path]:
        """The files, in order."""
        if not self.path.is_dir():
            return [self.path]
        found = sorted(p for p in self.path.iterdir() if p.suffix in (".npz", ".npy"))
        if not found:
            raise InputError(f"{self.path}: there are no .npz or .npy files in this folder")
        return found

    def _batches(self, file: Path) -> Iterator[dict[str, Array]]:
        arrays = self._load(file)
        ranks = {value.name: value.rank for value in self.graph.inputs}
        missing = [name for name in ranks if name not in arrays]
        if missing:
            raise InputError(f"{file}: it has no array {missing[0]!r}, which is an input of the model")
        feeds = {name: arrays[name] for name in ranks}
        stacked = all(rank is not None and feeds[name].ndim == rank + 1 for name, rank in ranks.items())
        if not stacked:
            yield feeds
            return
        if len({array.shape[0] for array in feeds.values()}) != 1:
            raise InputError(f"{file}: its arrays hold different numbers of batches")
        for batch in zip(*feeds.values(), strict=True):
            yield dict(zip(feeds, batch, strict=True))

    def _load(self, file: Path) -> dict[str, Array]:
        try:
            with file.open("rb") as stream:
                loaded = np.load(stream, allow_pickle=False)
                if not isinstance(loaded, np.ndarray):
                    return {name: loaded[name] for name in loaded.files}
        except FileNotFoundError as error:
            raise InputError(f"{file}: there is no such file") from error
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{file}: cannot be read as .npy or .npz: {error}") from error
        if len(self.graph.inputs) != 1:
            names = ", ".join(value.name for value in self.graph.inputs)
            raise InputError(f"{file}: a .npy file feeds one input, but the model has {names}; use .npz")
        return {self.graph.inputs[0].name: loaded}
