"""Constant: a node of the file, no node of the graph."""

from __future__ import annotations

import numpy as np

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts, to_array

_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@converts("Constant")
def constant(node: SourceNode) -> Results:
    """The one attribute that is given holds the numbers."""
    given = node.attributes.unread()
    if len(given) != 1:
        raise ModelError(f"{node.where}: wants exactly one value, has {', '.join(given) or 'none'}")
    (name,) = given
    if name in ("value", "sparse_value"):
        array = to_array(node.read(name), node.importer.external, f"{node.where}: attribute {name!r}")
    else:
        array = np.array(node.read(name), _DTYPES[name])
    return node.op.constant(array, node.outputs[0])
