"""First values of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aicore.errors import ConfigError
from aicore.ir import numpy_dtype
from aicore.nn.scope import Variable

Array = np.ndarray[Any, Any]


def first_values(variables: Iterable[Variable], seed: int) -> dict[str, Array]:
    """Numbers by name. Those of a variable depend on the seed and its name alone, not on other layers.

    Raises ConfigError for an initialiser that gives another shape.
    """
    return {variable.name: _first(variable, seed) for variable in variables}


def _first(variable: Variable, seed: int) -> Array:
    generator = np.random.default_rng([seed, *variable.name.encode()])
    shape = variable.type.static_shape
    found = np.asarray(variable.initializer(shape, generator))
    if found.shape != shape:
        raise ConfigError(f"{variable.name!r} is {list(shape)}, its initialiser gave {list(found.shape)}")
    return found.astype(numpy_dtype(variable.type.dtype))
