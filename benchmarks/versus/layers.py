"""Which layers lose: an aicore program's heaviest steps beside onnxruntime on models of one layer each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import onnx

from aicore.errors import AicoreError
from aicore.frontends.onnx import export_model
from aicore.ir import Builder, Graph, Node, TensorType, Value, as_tuple, numpy_dtype
from aicore.ops.layout import ChannelsLast, channels_first, images_of
from aicore.runtime import Step
from benchmarks.versus.pairs import settle
from benchmarks.versus.sides import Settings, open_onnxruntime
from tools.zoo import Array, Feeds

COMPUTE_BOUND_FLOPS_PER_BYTE = 4.0
"""Layers of more than this are rated in GFLOP/s, others in GB/s."""
PROFILES = 7
_BURST_SECONDS = 0.03
_OPSET, _IR_VERSION = 21, 10
"""The newest that onnxruntime 1.20 takes; no op of the networks changed since but for wider dtypes."""


@dataclass(frozen=True)
class Layer:
    """Steps of one program that are alike: same op, operand types and kernel.

    count: how many there are. seconds: of one, the mean over the alike in the profile where that is least.
    theirs: least seconds that onnxruntime takes for one, None where it cannot run it, and then `reason` says why.
    """

    op: str
    operands: str
    kernel: str
    count: int
    seconds: float
    flops: int
    moved: int
    theirs: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """Speed of aicore over that of onnxruntime."""
        return None if self.theirs is None else self.theirs / self.seconds

    @property
    def lost_seconds(self) -> float:
        """What the network would gain if all of these were as quick as onnxruntime's."""
        return 0.0 if self.theirs is None else self.count * (self.seconds - self.theirs)

    def rate(self, seconds: float) -> str:
        """`12.3 GFLOP/s`, or `4.5 GB/s` for a layer that memory holds up."""
        if self.flops > COMPUTE_BOUND_FLOPS_PER_BYTE * self.moved:
            return f"{self.flops / seconds / 1e9:.1f} GFLOP/s"
        return f"{self.moved / seconds / 1e9:.1f} GB/s"

    def as_json(self) -> dict[str, Any]:
        rates = {"ours": self.rate(self.seconds), "theirs": None if self.theirs is None else self.rate(self.theirs)}
        return {**asdict(self), "ratio": self.ratio, "lost_seconds": self.lost_seconds, "rates": rates}


def compare_layers(
    program: Any, feeds: Feeds, settings: Settings, most: int, progress: Callable[[int, int], None]
) -> list[Layer]:
    """The `most` heaviest layers, worst ratio first; those that onnxruntime cannot run come last.

    Steps are timed inside the network, while onnxruntime finds its operands in the caches: a little in its favour.
    """
    groups = group_steps(profile_steps(program, feeds))[:most]
    layers = []
    for number, (layer, node) in enumerate(groups):
        layers.append(_with_theirs(layer, node, settings))
        progress(number + 1, len(groups))
    return sorted(layers, key=lambda layer: (layer.ratio is None, layer.ratio))


def profile_steps(program: Any, feeds: Feeds) -> list[tuple[Step, list[float]]]:
    """Each step of the program's plans with its seconds in PROFILES runs; control flow is left out."""
    program.run(feeds)
    settle()
    profiles = [program.profile(feeds) for _ in range(PROFILES)]
    steps = [step for plan in program.plan for step in plan.steps]
    kernels = {(str(step.node), step.kernel.name) for step in steps}
    rows = [[row for row in profile.rows if (row.name, row.kernel) in kernels] for profile in profiles]
    named = [str(step.node) for step in steps]
    if any([row.name for row in found] != named for found in rows):
        raise RuntimeError("the profile lists other steps than the plan")
    return [(step, [found[i].seconds for found in rows]) for i, step in enumerate(steps)]


def group_steps(steps: Sequence[tuple[Step, list[float]]]) -> list[tuple[Layer, Node]]:
    """Alike steps as one layer with an example, the heaviest first."""
    groups: dict[tuple[Any, ...], list[tuple[Step, list[float]]]] = {}
    for step, seconds in steps:
        types = tuple(value and str(value.type) for value in step.node.inputs)
        groups.setdefault((step.node.op, types, step.kernel.name), []).append((step, seconds))
    found = [_layer(alike) for alike in groups.values()]
    return sorted(found, key=lambda pair: -pair[0].seconds * pair[0].count)


def _layer(alike: Sequence[tuple[Step, list[float]]]) -> tuple[Layer, Node]:
    step = alike[0][0]
    node = step.node
    runs = zip(*(seconds for _, seconds in alike), strict=True)
    seconds = min(sum(run) / len(alike) for run in runs)
    flops, moved = node.op.cost(*node.inputs)
    if not (isinstance(flops, int) and isinstance(moved, int)):
        flops = moved = 0  # sizes that depend on data
    operands = ", ".join("-" if value is None else str(value.type) for value in node.inputs)
    return Layer(op_text(node.op), operands, step.kernel.name, len(alike), seconds, flops, moved), node


_NEUTRAL = {"dilations": 1, "strides": 1, "pads": 0}
"""What fills fields that change nothing."""


def op_text(op: Any) -> str:
    """The op without fields that hold their default or change nothing."""
    if isinstance(op, ChannelsLast):
        return f"NHWC {op_text(op.inner)}"
    parts = [op_text(part) for part in vars(op).values() if hasattr(part, "decompose")]
    plain = {name: value for name, value in vars(op).items() if not hasattr(value, "decompose")}
    said = {name: value for name, value in plain.items() if value != getattr(type(op), name, None)}
    shown = [f"{name}={_short(value)}" for name, value in said.items() if _as_set(value) != {_NEUTRAL.get(name)}]
    return f"{type(op).__name__}({', '.join([*parts, *shown])})"


def _as_set(value: Any) -> set[Any]:
    return set(value) if isinstance(value, tuple) else {value}


def _short(value: Any) -> str:
    if isinstance(value, Graph):
        return "+".join(type(node.op).__name__ for node in value.nodes)
    text = str(value).replace(" ", "")
    return text if len(text) <= 40 else f"<{type(value).__name__}>"


def export_layer(node: Node) -> tuple[onnx.ModelProto, dict[str, TensorType]]:
    """A model of this one node, fused ops as their parts, and the types of its inputs by name.

    Constant operands are constants there. A node on channels-last images becomes the same one on ONNX's layout, which
    is what onnxruntime is best at, with no transposes around it.
    Raises AicoreError where ONNX cannot express the node, or a size is not known.
    """
    op, images, perm = node.op, tuple[int, ...](), tuple[int, ...]()
    if isinstance(op, ChannelsLast):
        images, perm = images_of(op.inner), channels_first(op.rank)
        op = op.inner
    made: dict[tuple[Value, bool], Value] = {}  # an operand used twice is one input
    operands: list[Value | None] = []
    for index, value in enumerate(node.inputs):
        if value is None or value.constant is not None:
            operands.append(value)
            continue
        is_image = index in images
        fresh = _input(f"x{index}", value.type, perm if is_image else None)
        operands.append(made.setdefault((value, is_image), fresh))
    inputs = list(made.values())
    builder = Builder()
    outputs = as_tuple(builder.apply(op, *operands))
    graph = builder.graph(inputs, {f"y{i}": value for i, value in enumerate(outputs)})
    model = export_model(graph)
    model.ir_version = _IR_VERSION
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = min(entry.version, _OPSET)
    return model, {value.name: value.type for value in inputs}


def _input(name: str, tensor: TensorType, perm: Sequence[int] | None) -> Value:
    shape = tensor.static_shape
    return Value(name, TensorType(tensor.dtype, shape if perm is None else tuple(shape[axis] for axis in perm)))


def random_operand(tensor: TensorType, seed: int) -> Array:
    """Normal numbers for floats; zeros for integers, which may be indices; True for booleans."""
    dtype, shape = numpy_dtype(tensor.dtype), tensor.static_shape
    if tensor.dtype == "bool":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return np.zeros(shape, dtype)
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _with_theirs(layer: Layer, node: Node, settings: Settings) -> Layer:
    fields = {name: getattr(layer, name) for name in Layer.__dataclass_fields__}
    refusals: tuple[type[Exception], ...] = (AicoreError, *_onnxruntime_errors())
    try:
        model, types = export_layer(node)
        seconds = _time_onnxruntime(model, types, settings)
    except refusals as error:
        return Layer(**{**fields, "reason": str(error).splitlines()[0]})
    return Layer(**{**fields, "theirs": seconds})


def _onnxruntime_errors() -> tuple[type[Exception], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException")
    return tuple(cast(type[Exception], getattr(state, name)) for name in names)


def _time_onnxruntime(model: onnx.ModelProto, types: dict[str, TensorType], settings: Settings) -> float:
    """Least seconds of a run that reads and writes memory taken before."""
    session = open_onnxruntime(model.SerializeToString(), settings)
    binding = session.io_binding()
    feeds = {name: random_operand(tensor, seed) for seed, (name, tensor) in enumerate(types.items())}
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output, array in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        kept = np.empty_like(array)
        feeds[f"kept {output.name}"] = kept  # the binding holds the address alone
        binding.bind_output(output.name, "cpu", 0, kept.dtype, kept.shape, kept.ctypes.data)
    settle()
    samples: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() - started < _BURST_SECONDS or len(samples) < PROFILES:
        before = time.perf_counter()
        session.run_with_iobinding(binding)
        samples.append(time.perf_counter() - before)
    return min(samples)
