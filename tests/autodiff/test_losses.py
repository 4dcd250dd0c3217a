"""The loss of classes: its numbers by hand, its decomposition, its gradient, and what ONNX makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import aicore
from aicore.errors import ExecutionError, InferenceError
from aicore.frontends.onnx import load_model
from aicore.ir import Builder, Sample, as_tuple
from aicore.kernels import KernelTable
from aicore.ops.losses import SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore.plugins import PluginRegistry
from aicore.runtime import ReferenceEvaluator
from aicore.testing import Outcome, Reference, check_gradient

Array = np.ndarray[Any, Any]
LOGITS = np.log(np.array([[1.0, 2, 5], [3, 1, 4]]))
"""Softmax of these is (1/8, 1/4, 5/8) and (3/8, 1/8, 1/2)."""


@pytest.fixture(scope="module")
def reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


def samples(cls: Any) -> list[Sample]:
    return [s for s in cls.samples(np.random.default_rng(0)) if max(a.size for a in s.inputs if a is not None) < 9999]


def ids(sample: Sample) -> str:
    return sample.note


@pytest.mark.parametrize(
    ("op", "target", "expected"),
    [
        (SoftmaxCrossEntropy(), [2, 0], [np.log(8 / 5), np.log(8 / 3)]),
        (SoftmaxCrossEntropy(), [[0, 0.5, 0.5], [1.0, 0, 0]], [np.log(32 / 5) / 2, np.log(8 / 3)]),
        (SoftmaxCrossEntropy(), [[0, 0, 2.0], [0, 0, 0.0]], [2 * np.log(8 / 5), 0]),
        (SoftmaxCrossEntropy(ignore_index=-1), [2, -1], [np.log(8 / 5), 0]),
        (
            SoftmaxCrossEntropy(label_smoothing=0.3),
            [2, 0],
            [
                0.7 * np.log(8 / 5) + 0.1 * np.log(8 * 4 * 8 / 5),
                0.7 * np.log(8 / 3) + 0.1 * np.log(8 / 3 * 8 * 2),
            ],
        ),
    ],
)
def test_loss_by_hand(op: SoftmaxCrossEntropy, target: Any, expected: list[float], reference: Reference) -> None:
    (loss,) = reference.evaluate(op, LOGITS, np.array(target))
    np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-15)


def test_gradient_by_hand(reference: Reference) -> None:
    g = np.array([2.0, -4.0])
    (found,) = reference.evaluate(SoftmaxCrossEntropyGrad(), LOGITS, np.array([2, 0]), g)
    np.testing.assert_allclose(found, [[1 / 4, 1 / 2, -3 / 4], [5 / 2, -1 / 2, -2]], rtol=1e-12)
    ignored = SoftmaxCrossEntropyGrad(ignore_index=0, label_smoothing=0.3)
    (found,) = reference.evaluate(ignored, LOGITS, np.array([2, 0]), g)
    np.testing.assert_allclose(found, [[2 / 8 - 0.2, 2 / 4 - 0.2, 10 / 8 - 1.6], [0, 0, 0]], rtol=1e-12)


@pytest.mark.parametrize("cls", [SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad])
def test_decomposition_is_the_kernel(cls: Any, reference: Reference, registry: PluginRegistry) -> None:
    table = KernelTable(registry.kernels)
    for sample in samples(cls):
        builder = Builder()
        arrays = [a for a in sample.inputs if a is not None]
        inputs = [builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
        parts = builder.graph(inputs, {"y": as_tuple(sample.op.decompose(builder, *inputs))[0]})
        (found,) = ReferenceEvaluator(table).graph(parts, arrays)
        (expected,) = reference.wide(sample.op, *arrays)
        scale = np.nanmax(np.abs(np.where(np.isfinite(arrays[0]), arrays[0], 0)), initial=1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=4e-6 * scale, err_msg=sample.note)


@pytest.mark.parametrize("sample", [*samples(SoftmaxCrossEntropy), *samples(SoftmaxCrossEntropyGrad)], ids=ids)
def test_gradients_agree_with_differences(sample: Sample, reference: Reference) -> None:
    verdict = check_gradient(sample, reference)
    assert verdict.outcome is Outcome.PASSED, verdict.reason
    assert verdict.compared > 0 or not sample.inputs[0].size  # type: ignore[union-attr]


def test_a_class_that_is_none(reference: Reference) -> None:
    for target in ([2, 3], [2, -1]):
        with pytest.raises(ExecutionError, match="and there are 3 classes"):
            reference.evaluate(SoftmaxCrossEntropy(), LOGITS, np.array(target))
        with pytest.raises(ExecutionError, match="and there are 3 classes"):
            reference.evaluate(SoftmaxCrossEntropyGrad(), LOGITS, np.array(target), np.ones(2))


@pytest.mark.parametrize(
    ("op", "target", "message"),
    [
        (SoftmaxCrossEntropy(), ("int64", (3,)), r"the target is \(3,\), wants \(2,\)"),
        (SoftmaxCrossEntropy(), ("int64", (2, 3)), r"the target is \(2, 3\), wants \(2,\)"),
        (SoftmaxCrossEntropy(), ("float32", (2,)), r"the target is \(2,\), wants \(2, 3\)"),
        (SoftmaxCrossEntropy(), ("float64", (2, 3)), "different dtypes"),
        (SoftmaxCrossEntropy(axis=2), ("int64", (2,)), "axis 2 is out of range"),
        (SoftmaxCrossEntropy(label_smoothing=1.5), ("int64", (2,)), r"label_smoothing 1.5 is not between 0 and 1"),
        (SoftmaxCrossEntropy(ignore_index=0), ("float32", (2, 3)), "ignore_index is for targets that are indices"),
    ],
)
def test_operands_that_do_not_fit(op: SoftmaxCrossEntropy, target: tuple[str, Any], message: str) -> None:
    builder = Builder()
    with pytest.raises(InferenceError, match=message):
        builder.apply(op, builder.input("x", "float32", (2, 3)), builder.input("t", *target))


def test_a_gradient_that_does_not_fit() -> None:
    builder = Builder()
    x, t = builder.input("x", "float32", (2, 3)), builder.input("t", "int64", (2,))
    with pytest.raises(InferenceError, match=r"the gradient is \(3,\), wants \(2,\)"):
        builder.apply(SoftmaxCrossEntropyGrad(), x, t, builder.input("g", "float32", (3,)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_onnx_has_a_gradient(weighted: bool, reduction: str) -> None:
    """The frontend expands it; numbers are those of its formula, whose weights sum up to the mean's divisor."""
    rng = np.random.default_rng(1)
    x, target = rng.normal(size=(4, 5)).astype(np.float32), np.array([1, 4, 2, 0])
    weights = rng.uniform(1, 2, 5).astype(np.float32) if weighted else np.ones(5, np.float32)
    names = ["x", "t", *(["w"] if weighted else [])]
    node = onnx.helper.make_node("SoftmaxCrossEntropyLoss", names, ["y"], reduction=reduction, ignore_index=2)
    total = onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    floats, ints = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [
        onnx.helper.make_tensor_value_info("x", floats, [4, 5]),
        onnx.helper.make_tensor_value_info("t", ints, [4]),
    ]
    inputs += [onnx.helper.make_tensor_value_info("w", floats, [5])] if weighted else []
    outputs = [onnx.helper.make_tensor_value_info("loss", floats, [])]
    graph = onnx.helper.make_graph([node, total], "loss", inputs, outputs)
    opset = [onnx.helper.make_opsetid("", 17)]
    program = aicore.compile(aicore.grad(load_model(onnx.helper.make_model(graph, opset_imports=opset)), "loss", ["x"]))
    found = program.run({"x": x, "t": target, **({"w": weights} if weighted else {})})

    counted = np.where(target == 2, 0, weights[target]).astype(np.float64)
    share = counted / counted.sum() if reduction == "mean" else counted
    softmax = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(1, keepdims=True)
    np.testing.assert_allclose(found["loss"], -(share * np.log(softmax[np.arange(4), target])).sum(), rtol=1e-6)
    np.testing.assert_allclose(found["grad.x"], share[:, None] * (softmax - np.eye(5)[target]), rtol=1e-5, atol=1e-7)
