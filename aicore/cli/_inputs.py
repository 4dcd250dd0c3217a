"""Options that several commands share, and what they mean: inputs from files, random inputs, sizes of free dims."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from aicore.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from aicore.ir import Dim, Graph, TensorType, Value

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
Fallback = Annotated[str | None, typer.Option("--fallback", metavar="error|warn|quiet", help=_FALLBACK_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

_SIZES = re.compile(r"(\d+(x\d+)*)?")
_BATCH_LIKE = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)
_MOST_INTEGER = 9
"""Random integers go from 0 to here: small enough to be indices of most axes."""


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
    arrays, sources = _from_files(inputs, files or ())
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


class Sizes:
    """Sizes of free dims: those that the user gives, those of arrays at hand, and 1 for a batch.

    chosen: what was taken as a batch of 1, in words.
    open: what is still needed, in words; known once `concrete` was asked for the inputs.
    """

    def __init__(
        self, graph: Graph, options: Iterable[str] | None, known: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._inputs = {value.name: value for value in graph.inputs}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._symbols: dict[str, Dim] = {}
        self.chosen: list[str] = []
        self.open: list[str] = []
        names = _symbols_of(graph.inputs)
        for option in options or ():
            self._read(option, names)
        for name, shape in (*self._shapes.items(), *(known or {}).items()):
            self._learn(self._inputs[name], shape)

    def concrete(self, value: Value) -> TensorType:
        """The input's type with every free dim replaced; where a size is missing, it is noted in `open` and stays."""
        from aicore.ir import TensorType, substitute

        given = self._shapes.get(value.name)
        if given is not None:
            return TensorType(value.dtype, given)
        if value.shape is None:
            self.open.append(f"the rank of input {value.name!r} is unknown; give --shape {value.name}=SIZES")
            return value.type
        for axis, dim in enumerate(value.shape):
            self._take_as_batch(value, axis, dim)
        sized = TensorType(value.dtype, tuple(substitute(dim, self._symbols) for dim in value.shape))
        if not sized.is_static:
            self.open.append(_request(value, sized.shape or ()))
        return sized

    def require_complete(self) -> None:
        """Raise InputError, saying what to give, while a size is missing."""
        if self.open:
            raise InputError("; ".join(dict.fromkeys(self.open)))

    def _read(self, option: str, names: set[str]) -> None:
        name, separator, sizes = option.rpartition("=")
        if not separator or not _SIZES.fullmatch(sizes):
            raise InputError(f"--shape {option!r}: write NAME=SIZES, such as x=1x3x224x224 or batch=4")
        numbers = tuple(int(size) for size in sizes.split("x") if size)
        if name in self._inputs:
            self._shapes[name] = _fitting(self._inputs[name], numbers, option)
        elif name in names and len(numbers) == 1:
            self._symbols[name] = numbers[0]
        elif name in names:
            raise InputError(f"--shape {option!r}: {name!r} is one dim, so it takes one size")
        else:
            dims = f"; its named dims are {', '.join(sorted(names))}" if names else ""
            raise InputError(f"--shape {option!r}: the model's inputs are {', '.join(self._inputs)}{dims}")

    def _learn(self, value: Value, shape: Sequence[int]) -> None:
        """Sizes of symbols that the shape of one input tells; contradictions are left to the program's own check."""
        for dim, size in zip(value.shape or (), shape, strict=False):
            name = _only_symbol(dim)
            if name is not None:
                self._symbols.setdefault(name, size)

    def _take_as_batch(self, value: Value, axis: int, dim: Dim) -> None:
        name = _only_symbol(dim)
        if name is None or name in self._symbols:
            return
        first_of_many = axis == 0 and value.rank is not None and value.rank > 1
        if first_of_many or _BATCH_LIKE.fullmatch(name):
            self._symbols[name] = 1
            self.chosen.append(f"{_describe(value, axis)} = 1")


def random_arrays(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Arrays of these static types: floats standard normal, integers 0 to 9, truth values, short texts."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {name: _random(rng, tensor) for name, tensor in types.items()}


def _random(rng: np.random.Generator, tensor: TensorType) -> Array:
    import numpy as np

    from aicore.ir import numpy_dtype

    shape = tensor.static_shape
    dtype = numpy_dtype(tensor.dtype)
    if tensor.dtype == "string":
        return np.array([f"text {n}" for n in rng.integers(0, 10, shape).ravel()], object).reshape(shape)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if "int" in tensor.dtype:
        return rng.integers(0, _largest(tensor.dtype) + 1, shape).astype(dtype)
    if tensor.dtype.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def _largest(dtype: str) -> int:
    """The largest random integer that the type holds."""
    bits = int(dtype.lstrip("uint")) - (not dtype.startswith("u"))
    return min(_MOST_INTEGER, (1 << bits) - 1)


def _from_files(inputs: Mapping[str, Value], options: Iterable[str]) -> tuple[dict[str, Array], dict[str, str]]:
    arrays: dict[str, Array] = {}
    sources: dict[str, str] = {}
    for option in options:
        for name, array in _read_option(inputs, option):
            if name in arrays:
                raise InputError(f"--input {option!r}: input {name!r} comes from {sources[name]} already")
            arrays[name] = _as_declared(array, inputs[name])
            sources[name] = _split(inputs, option)[1]
    return arrays, sources


def _read_option(inputs: Mapping[str, Value], option: str) -> list[tuple[str, Array]]:
    import numpy as np

    name, file = _split(inputs, option)
    loaded = _load(file)
    if not isinstance(loaded, np.ndarray):
        if name:
            raise InputError(f"--input {option!r}: {file} holds several arrays by name; give it without {name}=")
        unknown = [key for key in loaded if key not in inputs]
        if unknown:
            raise InputError(f"{file} has an array {unknown[0]!r}; the model's inputs are {', '.join(inputs)}")
        return list(loaded.items())
    if not name and len(inputs) == 1:
        name = next(iter(inputs))
    if name not in inputs:
        raise InputError(f"--input {option!r}: write NAME={file}; the model's inputs are {', '.join(inputs)}")
    return [(name, loaded)]


def _split(inputs: Mapping[str, Value], option: str) -> tuple[str, str]:
    """(name or empty, file); names and files may hold an equals sign."""
    known = [name for name in inputs if option.startswith(name + "=")]
    if known:
        name = max(known, key=len)
        return name, option[len(name) + 1 :]
    if Path(option).is_file():
        return "", option
    name, separator, file = option.partition("=")
    return (name, file) if separator else ("", option)


def _load(file: str) -> Array | dict[str, Array]:
    """The array of a .npy file, or those of a .npz file by name. Nothing is unpickled."""
    import numpy as np

    try:
        with Path(file).open("rb") as stream:  # NumPy would leave a damaged archive open
            loaded = np.load(stream, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except FileNotFoundError as error:
        raise InputError(f"{file}: there is no such file") from error
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, SyntaxError) as error:
        raise InputError(f"{file}: cannot be read as .npy or .npz: {error}") from error


def _as_declared(array: Array, value: Value) -> Array:
    """.npy files hold element types that NumPy lacks as bare bytes."""
    from aicore.ir import numpy_dtype

    wanted = numpy_dtype(value.dtype)
    bare = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == wanted.itemsize
    return array.view(wanted) if bare else array


def _fitting(value: Value, shape: tuple[int, ...], option: str) -> tuple[int, ...]:
    from aicore.ir import TensorType

    fits = value.shape is None or (
        len(value.shape) == len(shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, shape, strict=True))
    )
    if not fits:
        raise InputError(
            f"--shape {option!r}: input {value.name!r} is {value.type}, not {TensorType(value.dtype, shape)}"
        )
    return shape


def _symbols_of(inputs: Iterable[Value]) -> set[str]:
    from aicore.ir import is_unknown, symbols

    dims = [dim for value in inputs for dim in value.shape or () if not is_unknown(dim)]
    return {name for dim in dims for name in symbols(dim)}


def _only_symbol(dim: Dim) -> str | None:
    """The name, if the dim is one symbol and nothing else; unknown dims have names too."""
    from aicore.ir import symbol, symbols

    names = symbols(dim)
    return next(iter(names)) if len(names) == 1 and dim == symbol(next(iter(names))) else None


def _describe(value: Value, axis: int) -> str:
    from aicore.ir import is_unknown

    dim = (value.shape or ())[axis]
    return f"dim {axis if is_unknown(dim) else repr(_only_symbol(dim))} of input {value.name!r}"


def _request(value: Value, shape: Sequence[Dim]) -> str:
    """What to give for an input whose shape is `shape` so far."""
    from aicore.ir import is_unknown, symbols

    sizes = "x".join(str(dim) if isinstance(dim, int) else "SIZE" for dim in shape)
    names = sorted({name for dim in shape for name in symbols(dim)})
    by_name = "" if any(map(is_unknown, shape)) else f", or {' '.join(f'--shape {name}=SIZE' for name in names)}"
    return f"input {value.name!r} is {value.type}; give --shape {value.name}={sizes}{by_name}"


def _listing(values: Sequence[Value]) -> str:
    return f"input{'s' if len(values) > 1 else ''} {', '.join(f'{v.name!r} ({v.type})' for v in values)}"
