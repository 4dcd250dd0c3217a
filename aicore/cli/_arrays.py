"""Arrays from .npy and .npz files, at random, and to files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.errors import InputError, meant

if TYPE_CHECKING:
    import numpy as np

    from aicore.ir import TensorType, Value

    Array: TypeAlias = np.ndarray[Any, Any]

_MOST_INTEGER = 9
"""Random integers go from 0 to here: small enough to be indices of most axes."""


def read_arrays(inputs: Mapping[str, Value], options: Iterable[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays of --input options by name of the input, and the file that each came from.

    Raises InputError for a file that cannot be read, or that fits no input, or one that another feeds already.
    """
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
    if name and name not in inputs:
        raise InputError(f"--input {option!r}: {_unknown(name, inputs)}{meant(name, inputs)}")
    loaded = _load(file)
    if not isinstance(loaded, np.ndarray):
        if name:
            raise InputError(f"--input {option!r}: {file} holds several arrays by name; give it without {name}=")
        unknown = [key for key in loaded if key not in inputs]
        if unknown:
            raise InputError(
                f"--input {option!r}: {file} has an array {unknown[0]!r}, but {_unknown(unknown[0], inputs)}"
            )
        return list(loaded.items())
    if not name and len(inputs) == 1:
        name = next(iter(inputs))
    if not name:
        raise InputError(f"--input {option!r}: write NAME={file}; {_inputs(inputs)}")
    return [(name, loaded)]


def _unknown(name: str, inputs: Mapping[str, Value]) -> str:
    return f"the model has no input {name!r}; {_inputs(inputs)}"


def _inputs(inputs: Mapping[str, Value]) -> str:
    """The model's inputs, as a part of a message."""
    return f"its inputs: {', '.join(f'{name!r} ({value.type})' for name, value in inputs.items()) or 'none'}"


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


def save_arrays(folder: Path, arrays: Mapping[str, Array]) -> dict[str, Path]:
    """Write each array to `<name>.npy` in the folder, names made safe and unique; returns the files by name.

    Raises InputError when the folder or a file cannot be written.
    """
    import numpy as np

    files = dict(zip(arrays, (folder / f"{stem}.npy" for stem in _stems(arrays)), strict=True))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            texts = array.dtype == object
            np.save(files[name], array.astype(str) if texts else array, allow_pickle=False)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written: {error}") from error
    return files


def _stems(names: Iterable[str]) -> list[str]:
    """A file name for each; letters, digits, `.`, `-` and `_` alone, so that no name leads out of the folder."""
    stems: list[str] = []
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:120].strip(".") or "output"
        taken = {other.lower() for other in stems}  # some file systems ignore case
        unique = stem
        number = 2
        while unique.lower() in taken:
            unique, number = f"{stem}_{number}", number + 1
        stems.append(unique)
    return stems
