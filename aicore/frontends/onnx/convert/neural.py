"""Layers: normalisation, dropout, pooling, linear and recurrent ones."""

from __future__ import annotations

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.random import key_of
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Value

_SAVED = (3, 4)


@converts("BatchNormalization", until=13)
def batch_normalization(node: SourceNode) -> Results:
    """Until opset 13, asking for the running statistics means training; `spatial=0` has statistics per element."""
    node.attributes.ignore("is_test")  # opset 6; the outputs tell the same
    if node.read("spatial") == 0:
        return _per_element_normalization(node)
    if not any(node.wants(i) for i in range(1, 5)):
        results: Results = node.build(*node.inputs)
        return results
    y, mean, var = node.build(*node.inputs, training_mode=1)
    if not any(node.wants(i) for i in _SAVED):
        return y, mean, var
    return y, mean, var, *_batch_statistics(node)


@converts("Dropout", until=11)
def dropout_by_attributes(node: SourceNode) -> Results:
    """Until opset 11 dropout in inference is the identity; opset 6 says with `is_test` whether it is inference."""
    node.attributes.ignore("ratio")
    if node.opset < 7 and not node.read("is_test"):
        raise node.fail("training (is_test=0) is not supported in opset 6")
    mask_dtype = "bool" if node.opset >= 10 else node.operand().dtype
    return _without_dropout(node, mask_dtype)


@converts("Dropout", since=12)
def dropout(node: SourceNode) -> Results:
    """The identity, unless the model trains at a ratio that is not zero; the mask is an output by a field of the op."""
    ratio, training = node.input(1), node.input(2)
    trains = training is not None and (training.known is None or bool(training.known.any()))
    drops = ratio is None or ratio.known is None or bool(ratio.known.any())
    seed = node.read("seed")
    if not (trains and drops):
        return _without_dropout(node, "bool")
    results: Results = node.build(node.operand(), ratio, training, key_of(node, seed), mask=node.wants(1))
    return results


@converts("MaxPool")
def max_pool(node: SourceNode) -> Results:
    """The op says by a field whether it gives indices."""
    results: Results = node.build(node.operand(), indices=node.wants(1))
    return results


@converts("LayerNormalization")
def layer_normalization(node: SourceNode) -> Results:
    """The op says by a field whether it gives mean and inverse deviation."""
    results: Results = node.build(*node.inputs, statistics=node.wants(1) or node.wants(2))
    return results


@converts("GroupNormalization", until=20)
def group_normalization_by_group(node: SourceNode) -> Results:
    """Until opset 20 scale and bias have one element for each group; later ones, for each channel."""
    x, scale, bias = (node.operand(i) for i in range(3))
    groups = node.peek("num_groups")
    if x.shape is None:
        raise node.fail("needs an operand of known rank")
    per_group = x.shape[1] // groups
    if not isinstance(per_group, int):
        raise node.fail("needs a known number of channels")
    scale, bias = (_repeated(node, value, groups, per_group) for value in (scale, bias))
    results: Results = node.build(x, scale, bias)
    return results


@converts("Gemm", until=6)
def gemm_with_broadcast(node: SourceNode) -> Results:
    """C broadcasts only if `broadcast` says so; where it may, NumPy's rule gives the same."""
    node.attributes.ignore("broadcast")
    return node.as_is()


@converts("GRU", "LSTM", "RNN", until=6)
def recurrent(node: SourceNode) -> Results:
    """`output_sequence` said whether the first output is computed; it is wherever it has a name."""
    node.attributes.ignore("output_sequence")
    return node.as_is()


@converts("RoiAlign", until=15)
def roi_align(node: SourceNode) -> Results:
    """Until opset 15 coordinates are not moved by half a pixel."""
    results: Results = node.build(*node.inputs, coordinate_transformation_mode="output_half_pixel")
    return results


def _without_dropout(node: SourceNode, mask_dtype: str) -> Results:
    x = node.operand()
    y = node.op.Identity(x)
    if not node.wants(1):
        return y, None
    ones = node.op.Expand(node.op.constant([True]), node.op.Shape(x))
    return y, ones if mask_dtype == "bool" else node.op.Cast(ones, to=mask_dtype)


def _per_element_normalization(node: SourceNode) -> Results:
    if any(node.wants(i) for i in range(1, 5)):
        raise node.fail("training with spatial=0 is not supported")
    x, scale, bias, mean, var = (node.operand(i) for i in range(5))
    epsilon = node.op.scalar(node.read("epsilon"), x)
    node.attributes.ignore("momentum")
    op = node.op
    result: Results = op.Add(op.Mul(op.Div(op.Sub(x, mean), op.Sqrt(op.Add(var, epsilon))), scale), bias)
    return result


def _batch_statistics(node: SourceNode) -> tuple[Value, Value]:
    """Mean and variance over all axes but the channels'."""
    x, op = node.operand(), node.op
    if x.rank is None:
        raise ModelError(f"{node.where}: its statistics need an operand of known rank")
    axes = tuple(axis for axis in range(x.rank) if axis != 1)
    mean = op.ReduceMean(x, axes=axes, keepdims=1)
    deviation = op.Sub(x, mean)
    variance: Value = op.ReduceMean(op.Mul(deviation, deviation), axes=axes, keepdims=0)
    return op.Squeeze(mean, axes=axes), variance


def _repeated(node: SourceNode, value: Value, groups: int, times: int) -> Value:
    op = node.op
    spread = op.Expand(op.Reshape(value, shape=(groups, 1)), shape=(groups, times))
    repeated: Value = op.Reshape(spread, shape=(groups * times,))
    return repeated
