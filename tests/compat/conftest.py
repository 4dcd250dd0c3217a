"""The stand-in in place of the real module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aicore.compat.onnxruntime import install


@pytest.fixture
def ours() -> Iterator[Any]:
    """The stand-in, in place of the real module."""
    with install(target="cpu") as installation:
        yield installation.module


@pytest.fixture
def free() -> Iterator[Any]:
    """The stand-in whose sessions follow the providers that the client names."""
    with install() as installation:
        yield installation.module
