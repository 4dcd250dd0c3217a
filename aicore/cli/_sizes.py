"""Sizes of free dims: from --shape, from arrays at hand, and 1 for a batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aicore.errors import InputError

if TYPE_CHECKING:
    from aicore.ir import Dim, Graph, TensorType, Value

_SIZES = re.compile(r"(\d+(x\d+)*)?")
_BATCH_LIKE = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)


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
