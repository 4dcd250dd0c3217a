"""The ONNX Backend API on aicore, for tools that run models through it:

    BackendTest(aicore.onnx_backend, __name__)          # the suite of the onnx package
    aicore.onnx_backend.run_model(model, [array])

What aicore cannot do raises UnsupportedError in `prepare`, before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

from aicore.api import compile as compile_model
from aicore.errors import InputError
from aicore.frontends.onnx import load_model
from aicore.frontends.onnx.write_protos import type_proto
from aicore.ir import TensorType, dtype_name
from aicore.plugins import plugin_registry
from aicore.program import Program
from aicore.runtime.control_flow import is_control_flow


@dataclass(frozen=True, slots=True)
class Proof:
    """What the latest run of a program did.

    nodes: of the graph that ran, after all passes. planned: those of its plans, and control flow, which the core walks.
    steps: launches that the plans hold. steps_run: launches that devices report for this run.
    """

    nodes: int
    planned: int
    steps: int
    steps_run: int

    @property
    def complete(self) -> bool:
        """Whether there was a node, and every node was in a plan all of whose steps ran."""
        return 0 < self.nodes == self.planned and self.steps == self.steps_run


class AicoreRep(BackendRep):
    """A model made ready.

    proof: of the latest run; None before the first.
    """

    def __init__(self, model: ModelProto, device: str, optimize: bool = True) -> None:
        self._model = model
        self._listed = [value.name for value in model.graph.input]
        self._compile = partial(_compile, model, device, optimize)
        self._program = self._compile(())
        self._overridden: Program | None = None
        self.proof: Proof | None = None

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs as a tuple that also answers to their names.

        inputs: arrays in the order of the model's inputs, or a dict of them by name, or a single array. Initializers
            that the model lists as inputs keep their values, unless there is an array for every listed input.
        Raises InputError for too many or too few, and for what does not fit.
        """
        program, feeds = self._feeds(inputs)
        before = program.steps_run
        outputs = program.run(feeds)
        self.proof = _proof(program, before)
        names = list(outputs)
        return namedtupledict("Outputs", names)(*(np.asarray(outputs[name]) for name in names))

    def _feeds(self, inputs: Any) -> tuple[Program, dict[str, Any]]:
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            needed = list(self._program.inputs)
            names = needed if len(arrays) == len(needed) else self._listed
            if len(arrays) != len(names):
                raise InputError(f"{len(arrays)} arrays for {len(needed)} inputs: {', '.join(map(repr, needed))}")
            given = dict(zip(names, arrays, strict=True))
        if given.keys() <= self._program.inputs.keys() or not given.keys() <= set(self._listed):
            return self._program, given
        if self._overridden is None:
            overridable = {tensor.name for tensor in self._model.graph.initializer} & set(self._listed)
            self._overridden = self._compile(overridable & given.keys())
        return self._overridden, given


class AicoreBackend(Backend):
    """The classmethods that the functions of this module are."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a plugin drives the device: `CPU`, `CUDA`, `CUDA:1`."""
        return any(name.split(":")[0] == device.lower().split(":")[0] for name in plugin_registry().devices())

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True: `prepare` tells what is wrong with a model better than a bool."""
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> AicoreRep:
        """The model compiled for a device.

        kwargs: `optimize=False` leaves the graph as the file has it; others are ignored, as the API asks.
        Raises UnsupportedError for what aicore cannot do, ModelError for a model that breaks ONNX's rules.
        """
        return AicoreRep(model, device.lower(), kwargs.get("optimize", True))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node.

        inputs: arrays for those inputs of the node that have a name, in order; or a dict.
        outputs_info: dtype and shape of each output, checked against what is inferred.
        kwargs: `opset_version` of the standard domain; the newest by default.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        typed = {name: np.asarray(array) for name, array in arrays.items()}
        model = _model_of(node, typed, outputs_info, kwargs.get("opset_version"))
        return cls.run_model(model, arrays, device)


prepare = AicoreBackend.prepare
run_model = AicoreBackend.run_model
run_node = AicoreBackend.run_node
supports_device = AicoreBackend.supports_device
is_compatible = AicoreBackend.is_compatible


def _compile(model: ModelProto, device: str, optimize: bool, overridable: Collection[str]) -> Program:
    graph = load_model(model, extra_ops=plugin_registry().ops.values(), overridable=overridable)
    program = compile_model(graph, target=device, optimize=optimize)
    shapes = {name: tensor.shape for name, tensor in program.inputs.items() if tensor.is_static}
    if len(shapes) == len(program.inputs):  # what has no kernel is told now, not by the first run
        program.specialise({name: tensor.static_shape for name, tensor in program.inputs.items()})
    return program


def _proof(program: Program, before: int) -> Proof:
    placement, plans = program.placement, program.plan
    nodes = () if placement is None else tuple(placement.devices)
    walked = sum(is_control_flow(node.op) for node in nodes)
    steps = sum(len(plan.steps) for plan in plans)
    return Proof(len(nodes), walked + sum(plan.nodes for plan in plans), steps, program.steps_run - before)


def _model_of(
    node: NodeProto,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    opset: int | None,
) -> ModelProto:
    model = ModelProto(ir_version=onnx.IR_VERSION)
    entry = model.opset_import.add()
    entry.domain, entry.version = "", opset or onnx.defs.onnx_opset_version()
    if node.domain not in ("", "ai.onnx"):
        entry = model.opset_import.add()
        entry.domain, entry.version = node.domain, 1
    model.graph.name = node.name or node.op_type
    model.graph.node.add().CopyFrom(node)
    for name, array in arrays.items():
        value = model.graph.input.add()
        value.name = name
        value.type.CopyFrom(type_proto(TensorType(dtype_name(array.dtype), array.shape)))
    for index, name in enumerate(node.output):
        if not name:
            continue
        value = model.graph.output.add()
        value.name = name
        if outputs_info is not None:
            dtype, shape = outputs_info[index]
            value.type.CopyFrom(type_proto(TensorType(dtype_name(np.dtype(dtype)), tuple(shape))))
    return model
