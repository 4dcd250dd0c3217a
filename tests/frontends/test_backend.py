"""The ONNX Backend API: devices, operands by position and name, single nodes, and the proof that a launcher ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore import onnx_backend
from aicore.errors import InputError, UnsupportedError
from aicore.onnx_backend import Proof
from tests.frontends.models import FLOAT, model, node, tensor

X, W = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


def add_model(**more: Any) -> onnx.ModelProto:
    return model([node("Add", ["x", "w"], ["y"])], {"x": [2], "w": [2]}, ["y"], **more)


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("TPU")
    assert onnx_backend.is_compatible(add_model())


def test_operands_by_position_by_name_and_alone() -> None:
    rep = onnx_backend.prepare(add_model(), "CPU")
    for inputs in ([X, W], (X, W), {"w": W, "x": X}):
        outputs = rep.run(inputs)
        assert outputs[0].tolist() == [4, 6]
        assert outputs["y"].tolist() == [4, 6]  # type: ignore[call-overload]
    relu = onnx_backend.prepare(model([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"]))
    assert relu.run(-X)[0].tolist() == [0, 0]
    assert onnx_backend.run_model(add_model(), [X, W])[0].tolist() == [4, 6]


def test_operands_that_do_not_fit() -> None:
    rep = onnx_backend.prepare(add_model())
    with pytest.raises(InputError, match="1 arrays for 2 inputs: 'x', 'w'"):
        rep.run([X])
    with pytest.raises(InputError, match="ghost"):
        rep.run({"x": X, "w": W, "ghost": W})


def test_initializers_that_are_listed_as_inputs_may_be_given() -> None:
    rep = onnx_backend.prepare(add_model(constants={"w": W}))
    assert rep.run([X])[0].tolist() == [4, 6]
    assert rep.run([X, X])[0].tolist() == [2, 4]
    assert rep.run({"x": X, "w": W * 2})[0].tolist() == [7, 10]
    assert rep.run([X])[0].tolist() == [4, 6]


def test_what_is_not_supported_is_told_before_anything_runs() -> None:
    made = model([node("ImageDecoder", ["x"], ["y"], name="m")], {"x": [1, 2]}, ["y"])
    with pytest.raises(UnsupportedError, match="ImageDecoder 'm'"):
        onnx_backend.prepare(made, "CPU")


def test_single_nodes() -> None:
    (y,) = onnx_backend.run_node(node("Add", ["a", "b"], ["y"]), [X, W])
    assert y.tolist() == [4, 6]
    (y,) = onnx_backend.run_node(node("Clip", ["x", "", "high"], ["y"]), [X, np.float32(1.5)])
    assert y.tolist() == [1, 1.5]
    (y,) = onnx_backend.run_node(node("Mul", ["a", "a"], ["y"]), {"a": W}, outputs_info=[(np.dtype(np.float32), (2,))])
    assert y.tolist() == [9, 16]
    (y,) = onnx_backend.run_node(node("Softmax", ["x"], ["y"]), [np.zeros((1, 2, 2), np.float32)], opset_version=12)
    assert y.tolist() == [[[0.25, 0.25], [0.25, 0.25]]]


def test_a_single_node_of_another_domain() -> None:
    with pytest.raises(UnsupportedError, match=r"no operator 'F' is known in the domain 'org.example'"):
        onnx_backend.run_node(helper.make_node("F", ["x"], ["y"], domain="org.example"), [X])


def test_the_proof_counts_what_ran() -> None:
    rep = onnx_backend.prepare(add_model())
    assert rep.proof is None
    for _ in range(2):
        rep.run([X, W])
        assert rep.proof == Proof(nodes=1, planned=1, steps=1, steps_run=1)
        assert rep.proof.complete
    renaming = onnx_backend.prepare(model([node("Identity", ["x"], ["y"])], [tensor("x", FLOAT, [2])], ["y"]))
    renaming.run([X])
    assert renaming.proof is not None


@pytest.mark.parametrize("proof", [Proof(0, 0, 0, 0), Proof(2, 1, 1, 1), Proof(1, 1, 1, 0), Proof(1, 1, 1, 2)])
def test_proofs_that_prove_nothing(proof: Proof) -> None:
    assert not proof.complete
