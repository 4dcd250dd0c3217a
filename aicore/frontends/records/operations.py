"""What each op_type means: a function that makes its nodes. Matrices are row-major, images NCHW."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.errors import ModelError
from aicore.frontends.records.losses import loss
from aicore.frontends.records.record import BRANCHES, Read
from aicore.ir import Value
from aicore.ops.control import If

if TYPE_CHECKING:
    from aicore.frontends.records.graph import Converter

Operation: TypeAlias = "Callable[[Converter, Read], Value]"


def operands(c: Converter, record: Read, least: int, most: int | None = None) -> list[Value]:
    """The tensors of a record: inputs, then params. Raises ModelError for another number of them."""
    names = (*record.inputs, *record.params)
    most = least if most is None else most
    if not least <= len(names) <= most:
        wanted = str(least) if least == most else f"{least} to {most}" if most < MANY else f"{least} or more"
        raise ModelError(f"{record.place}: {len(names)} operands {list(names)}, wants {wanted}")
    return [c.value(name, record) for name in names]


MANY = 10**6


def pointwise(op: str, c: Converter, record: Read, **attributes: Any) -> Value:
    (x,) = operands(c, record, 1)
    return getattr(c.builder, op)(x, **attributes)  # type: ignore[no-any-return]


def with_alpha(op: str, default: float, c: Converter, record: Read) -> Value:
    return pointwise(op, c, record, alpha=record.extra.number("alpha", default=default))


def matmul(c: Converter, record: Read) -> Value:
    return c.builder.MatMul(*operands(c, record, 2))  # type: ignore[no-any-return]


def add(c: Converter, record: Read) -> Value:
    first, *others = operands(c, record, 2, MANY)
    for other in others:
        first = c.builder.Add(first, other)
    return first


def add_bias(c: Converter, record: Read) -> Value:
    """A bias for each column of the last axis, or for each channel of images."""
    x, bias = operands(c, record, 2)
    op = c.builder
    flat = bias if bias.rank == 1 else op.Reshape(bias, shape=(-1,))
    return op.Add(x, op.Unsqueeze(flat, axes=(1, 2)) if x.rank == 4 else flat)  # type: ignore[no-any-return]


def gelu(c: Converter, record: Read) -> Value:
    form = record.extra.get("approximate", "gelu_tanh", "form", default="erf")
    names = {"tanh": "tanh", True: "tanh", "erf": "none", "none": "none", False: "none"}
    if form not in names:
        raise ModelError(f"{record.place}: approximate is {form!r}, wants 'tanh' or 'erf'")
    return pointwise("Gelu", c, record, approximate=names[form])


def silu(c: Converter, record: Read) -> Value:
    (x,) = operands(c, record, 1)
    return c.builder.Mul(x, c.builder.Sigmoid(x))  # type: ignore[no-any-return]  # not Swish: ONNX got it in opset 24


def softmax(c: Converter, record: Read) -> Value:
    op = c.builder
    (x,) = operands(c, record, 1)
    axis = record.extra.integer("axis", default=-1)
    temperature = record.extra.number("temperature", default=1.0)
    if not temperature > 0:
        raise ModelError(f"{record.place}: temperature is {temperature}, wants a number above 0")
    scaled = x if temperature == 1 else op.Mul(x, op.scalar(1 / temperature, x))
    return op.Softmax(scaled, axis=axis)  # type: ignore[no-any-return]


def conv2d(c: Converter, record: Read) -> Value:
    x, weight, *bias = operands(c, record, 2, 3)
    extra = record.extra
    kernel = extra.pair("kernel", "kernel_size", least=1)
    attributes = {
        "strides": extra.pair("stride", "strides", least=1, default=(1, 1)),
        "dilations": extra.pair("dilation", "dilations", least=1, default=(1, 1)),
        "group": max(extra.integer("groups", "group", default=1), 1),
        **_padding(record),
    }
    if kernel is not None:
        attributes["kernel_shape"] = kernel
    flat = [c.builder.Reshape(b, shape=(-1,)) if b.rank != 1 else b for b in bias]
    return c.builder.Conv(x, weight, *flat, **attributes)  # type: ignore[no-any-return]


def pool(op: str, c: Converter, record: Read) -> Value:
    (x,) = operands(c, record, 1)
    extra = record.extra
    kernel = extra.pair("kernel", "kernel_size", "pool_size", least=1)
    if kernel is None:
        raise ModelError(f"{record.place}: the extra parameter kernel is missing")
    attributes = {
        "kernel_shape": kernel,
        "strides": extra.pair("stride", "strides", least=1, default=kernel),
        "dilations": extra.pair("dilation", "dilations", least=1, default=(1, 1)),
        **_padding(record),
    }
    if op == "AveragePool":
        attributes["count_include_pad"] = int(extra.flag("count_include_pad"))
    return getattr(c.builder, op)(x, **attributes)  # type: ignore[no-any-return]


def _padding(record: Read) -> dict[str, Any]:
    given = record.extra.get("padding", "pad", default=None)
    if isinstance(given, str):
        if given.lower() not in ("same", "valid"):
            raise ModelError(f"{record.place}: padding is {given!r}, wants 'same', 'valid' or integers")
        return {"auto_pad": "SAME_UPPER"} if given.lower() == "same" else {}
    height, width = record.extra.pair("padding", "pad", least=0) or (0, 0)
    return {"pads": (height, width, height, width)}


def slice_time(c: Converter, record: Read) -> Value:
    """x[:, time]: (batch, time, features) -> (batch, features)."""
    (x,) = operands(c, record, 1)
    time = record.extra.integer("time", "time_step", "time_index", "t", "index")
    steps = x.shape[1] if x.shape is not None and len(x.shape) > 1 else None
    if isinstance(steps, int) and not -steps <= time < steps:
        raise ModelError(f"{record.place}: time {time} is out of range for {steps} steps")
    end = time + 1 if time != -1 else np.iinfo(np.int64).max
    step = c.builder.Slice(x, starts=(time,), ends=(int(end),), axes=(1,))
    return c.builder.Squeeze(step, axes=(1,))  # type: ignore[no-any-return]


def concat_time(c: Converter, record: Read) -> Value:
    """(batch, features) of each step, or sequences (batch, time, features), one after another along time."""
    parts = operands(c, record, 1, MANY)
    op = c.builder
    return op.Concat(*(op.Unsqueeze(x, axes=(1,)) if x.rank == 2 else x for x in parts), axis=1)  # type: ignore[no-any-return]


def fill_zero(c: Converter, record: Read) -> Value:
    """Zeros, of the shape given, or of that in `tensors` under the output's name, or like the input."""
    op = c.builder
    like = operands(c, record, 0, 1)
    if like:
        return op.Expand(op.scalar(0.0, like[0]), op.Shape(like[0]))  # type: ignore[no-any-return]
    known = c.tensors.get(record.output)
    shape = record.extra.integers("shape", default=known if known is None else tuple(getattr(known, "shape", known)))
    return op.Expand(op.constant(np.zeros((), np.float32)), shape=shape)  # type: ignore[no-any-return]


def rnn(c: Converter, record: Read) -> Value:
    """h = activation(x w + h r + b) over x (batch, time, features); w (features, units), r (units, units), b (units).

    Params are w, r and, optionally, b; a second input is the initial state (batch, units).
    """
    op = c.builder
    if len(record.inputs) not in (1, 2) or len(record.params) not in (2, 3):
        raise ModelError(f"{record.place}: wants inputs (x, initial state?) and params (w, r, b?)")
    x, *initial = (c.value(name, record) for name in record.inputs)
    w, r, *bias = (c.value(name, record) for name in record.params)
    name = str(record.extra.get("activation", default="tanh")).lower()
    known = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}
    if name not in known:
        raise ModelError(f"{record.place}: activation is {name!r}, wants one of {', '.join(known)}")
    packed = [op.Unsqueeze(op.Transpose(matrix, perm=(1, 0)), axes=(0,)) for matrix in (w, r)]
    flat = [op.Reshape(b, shape=(1, -1)) for b in bias]
    both = [op.Concat(b, op.Mul(b, op.scalar(0.0, b)), axis=1) for b in flat]
    first = [op.Unsqueeze(state, axes=(0,)) for state in initial]
    y, last = op.RNN(
        op.Transpose(x, perm=(1, 0, 2)),
        *packed,
        both[0] if both else None,
        None,
        first[0] if first else None,
        activations=(known[name],),
    )
    if record.extra.flag("return_sequences", "all_states"):
        return op.Transpose(op.Squeeze(y, axes=(1,)), perm=(1, 0, 2))  # type: ignore[no-any-return]
    return op.Squeeze(last, axes=(0,))  # type: ignore[no-any-return]


def embedding(c: Converter, record: Read) -> Value:
    """Rows of a table (the param) at integers; whole numbers in floats do too, as in the earlier version's buffers."""
    if len(record.inputs) != 1 or len(record.params) != 1:
        raise ModelError(f"{record.place}: wants one input (indices) and one param (table)")
    indices, table = operands(c, record, 2)
    if indices.dtype not in ("int32", "int64"):
        indices = c.builder.Cast(indices, to="int64")
    return c.builder.Gather(table, indices, axis=0)  # type: ignore[no-any-return]


def pad(c: Converter, record: Read) -> Value:
    (x,) = operands(c, record, 1)
    extra = record.extra
    pads = extra.integers("pads", "padding")
    mode = str(extra.get("mode", default="constant"))
    axes = extra.integers("axes", default=()) or None
    value = extra.number("value", "constant_value", default=0.0)
    return c.builder.Pad(x, mode=mode, pads=pads, constant_value=value, axes=axes)  # type: ignore[no-any-return]


def slice_(c: Converter, record: Read) -> Value:
    (x,) = operands(c, record, 1)
    extra = record.extra
    starts, ends = extra.integers("starts", "start"), extra.integers("ends", "end")
    axes, steps = extra.integers("axes", "axis", default=()), extra.integers("steps", "step", default=())
    return c.builder.Slice(x, starts=starts, ends=ends, axes=axes or None, steps=steps or None)  # type: ignore[no-any-return]


def view(c: Converter, record: Read) -> Value:
    (x,) = operands(c, record, 1)
    return c.builder.Reshape(x, shape=record.extra.integers("shape"))  # type: ignore[no-any-return]


def concat(c: Converter, record: Read) -> Value:
    parts = operands(c, record, 1, MANY)
    return c.builder.Concat(*parts, axis=record.extra.integer("axis", default=-1))  # type: ignore[no-any-return]


def conditional(c: Converter, record: Read) -> Value:
    """The records of one branch or the other; the input decides: a bool, or a number, of which 0 is false."""
    op = c.builder
    (condition,) = operands(c, record, 1)
    branches = []
    for names in BRANCHES:
        found = record.branch(names)
        if not found:
            raise ModelError(f"{record.place}: the branch {names[0]!r} has no records")
        branches.append(c.branch(found))
    outside = {name: value for inner, _ in branches for name, (value, _) in inner.captured.items()}
    graphs = [inner.closed(outside, {record.output: result}) for inner, result in branches]
    flag = op.Reshape(condition, shape=()) if condition.rank != 0 else condition
    flag = flag if flag.dtype == "bool" else op.Cast(flag, to="bool")
    return op.apply(If(*graphs), flag, *outside.values())  # type: ignore[no-any-return]


def loss_record(c: Converter, record: Read) -> Value:
    """The mean loss of a batch: of inputs (prediction, target), or the prediction with the target's name in extra."""
    extra = record.extra
    label = extra.get("label", "label_id", "target", default=None)
    names: Sequence[str] = record.inputs if label is None or len(record.inputs) > 1 else (*record.inputs, str(label))
    if len(names) != 2:
        raise ModelError(f"{record.place}: wants inputs (prediction, target), got {list(names)}")
    prediction, target = (c.value(name, record) for name in names)
    kind = str(extra.get("loss_type", "loss", "kind")).lower()
    return loss(c.builder, record.place, kind, prediction, target, extra.flag("from_logits"))


OPERATIONS: Mapping[str, Operation] = {
    "MATMUL": matmul,
    "ADD": add,
    "ADD_BIAS": add_bias,
    "RELU": partial(pointwise, "Relu"),
    "SIGMOID": partial(pointwise, "Sigmoid"),
    "TANH": partial(pointwise, "Tanh"),
    "LEAKY_RELU": partial(with_alpha, "LeakyRelu", 0.01),
    "ELU": partial(with_alpha, "Elu", 1.0),
    "GELU": gelu,
    "SILU": silu,
    "SOFTMAX": softmax,
    "FLATTEN": partial(pointwise, "Flatten"),
    "CONV2D": conv2d,
    "POOL_MAX": partial(pool, "MaxPool"),
    "POOL_AVG": partial(pool, "AveragePool"),
    "SLICE_TIME": slice_time,
    "CONCAT_TIME": concat_time,
    "FILL_ZERO": fill_zero,
    "RNN": rnn,
    "LOSS": loss_record,
    "IF": conditional,
    "CONDITIONAL": conditional,
    "EMBEDDING": embedding,
    "PAD": pad,
    "SLICE": slice_,
    "VIEW": view,
    "CONCAT": concat,
}
"""What converts each op_type."""
