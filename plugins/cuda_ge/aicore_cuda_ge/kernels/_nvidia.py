"""Where NVIDIA's libraries are: in its wheels, which CuPy and PyTorch bring, or in the folders of the system."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from aicore.errors import ExecutionError

_SYSTEM = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def library_file(names: Sequence[str], folders: Sequence[str]) -> str:
    """The first file of these names, in wheels first; empty when there is none. Nothing is loaded.

    folders: of the wheels, below `nvidia`.
    """
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    places = [*(root / folder for root in wheels for folder in folders), *map(Path, _SYSTEM)]
    return next((str(place / name) for place in places for name in names if (place / name).is_file()), "")


def loaded(path: str, absent: str) -> ctypes.CDLL:
    """The library at a path that `library_file` gave.

    absent: the error where that is empty. Raises ExecutionError with it, or when the file cannot be loaded.
    """
    if not path:
        raise ExecutionError(absent)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ExecutionError(f"{path} cannot be loaded: {error}") from error
