"""Where NVIDIA's libraries are: in its wheels, which CuPy and PyTorch bring, or in the folders of the system."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

_SYSTEM = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def library_file(names: Sequence[str], folders: Sequence[str]) -> str:
    """The first file of these names, in wheels first; empty when there is none. Nothing is loaded.

    folders: of the wheels, below `nvidia`.
    """
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    places = [*(root / folder for root in wheels for folder in folders), *map(Path, _SYSTEM)]
    return next((str(place / name) for place in places for name in names if (place / name).is_file()), "")
