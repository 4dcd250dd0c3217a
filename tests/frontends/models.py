"""Small ONNX models for the tests of the front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import aicore
from aicore.frontends.onnx import load_model

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL
node = helper.make_node
tensor = helper.make_tensor_value_info


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any] | Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    ir: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model; inputs are float32 of the given shapes, outputs have no type, unless they are ValueInfoProtos."""
    declared = [tensor(n, FLOAT, s) for n, s in inputs.items()] if isinstance(inputs, Mapping) else list(inputs)
    ends = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "tested", declared, ends, initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def run(source: Any, **feeds: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs on the CPU, in order."""
    return list(aicore.compile(load_model(source), target="cpu").run(feeds).values())


def ops_of(source: Any) -> list[str]:
    """Names of the ops of a loaded model, in order."""
    return [type(n.op).__name__ for n in load_model(source).nodes]
