"""Options that several commands share, and what they mean: inputs from files, random inputs, sizes of free dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from aicore.cli._arrays import random_arrays, read_arrays
from aicore.cli._report import Json as Json
from aicore.cli._sizes import Sizes
from aicore.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from aicore.ir import Graph, Value

    Array: TypeAlias = np.ndarray[Any, Any]

_INPUT_HELP = "An input from a file; may be repeated. A .npz feeds every input that it holds an array for."
_SHAPE_HELP = "Shape of an input, x=1x3x224x224, or size of a named dim, height=224; may be repeated."
_TARGET_HELP = "Device, such as cpu or cuda:0. Default: AICORE_TARGET, or the best."
_FALLBACK_HELP = "What becomes of nodes that the device cannot run. Default: AICORE_FALLBACK, or warn."

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX model file.", show_default=False)]
InputFiles = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="NAME=FILE.npy|FILE.npz", help=_INPUT_HELP)
]
Shapes = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=SIZES", help=_SHAPE_HELP)]
Random = Annotated[bool, typer.Option("--random", help="Fill inputs without a file with random numbers.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random numbers.")]
Target = Annotated[str | None, typer.Option("--target", "-t", metavar="DEVICE", help=_TARGET_HELP)]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="Threads of a run. Default: AICORE_THREADS, or all.")
]
Fallback = Annotated[str | None, typer.Option("--fallback", metavar="error|warn|quiet", help=_FALLBACK_HELP)]


@dataclass(frozen=True)
class Feed:
    """The arrays for a run, and where each came from: a file, or `random`.

    chosen: sizes of free dims that nobody gave, in words.
    """

    arrays: Mapping[str, Array]
    sources: Mapping[str, str]
    chosen: Sequence[str] = field(default_factory=tuple)


def make_feed(graph: Graph, files: Iterable[str] | None, shapes: Iterable[str] | None, random: bool, seed: int) -> Feed:
    """Arrays for every input of the graph, from files first, then at random if that is allowed.

    Raises InputError for a file that cannot be read or fits no input, for a size that contradicts the model or is
    missing, and for an input without a value; each says which option cures it.
    """
    inputs = {value.name: value for value in graph.inputs}
    arrays, sources = read_arrays(inputs, files or ())
    missing = [value for value in graph.inputs if value.name not in arrays]
    if missing and not random:
        raise InputError(
            f"no value for {_listing(missing)}; give --input {missing[0].name}=FILE.npy, or --random for random numbers"
        )
    sizes = Sizes(graph, shapes, {name: array.shape for name, array in arrays.items()})
    types = {value.name: sizes.concrete(value) for value in missing}
    sizes.require_complete()
    arrays.update(random_arrays(types, seed))
    sources.update(dict.fromkeys(types, "random"))
    return Feed({name: arrays[name] for name in inputs}, sources, sizes.chosen)


def _listing(values: Sequence[Value]) -> str:
    return f"input{'s' if len(values) > 1 else ''} {', '.join(f'{v.name!r} ({v.type})' for v in values)}"
