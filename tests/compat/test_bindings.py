"""OrtValue and IOBinding beside the real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as real
import pytest
from onnx import TensorProto

from aicore.errors import AicoreError
from tests.compat.client import K, S, X, feed, same, session

BINDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "fresh outputs": lambda ort, binding: [binding.bind_output("y"), binding.bind_output("z", "cpu")],
    "an OrtValue for an output": lambda ort, binding: binding.bind_ortvalue_output(
        "y", ort.OrtValue.ortvalue_from_shape_and_type((2, 3), np.float32, "cpu", 0)
    ),
}


@pytest.mark.parametrize("bind", BINDINGS.values(), ids=BINDINGS.keys())
def test_io_binding(ours: Any, bind: Callable[[Any, Any], Any]) -> None:
    def client(ort: Any) -> list[Any]:
        made = session(ort)
        binding = made.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_input("k", ort.OrtValue.ortvalue_from_numpy(K))
        binding.bind_input("s", "cpu", 0, np.float32, (), S.ctypes.data)
        bind(ort, binding)
        made.run_with_iobinding(binding)
        return [*binding.copy_outputs_to_cpu(), *(value.numpy() for value in binding.get_outputs())]

    for a, b in zip(client(ours), client(real), strict=True):
        same(a, b)


@pytest.mark.parametrize("element_type", [np.float32, TensorProto.FLOAT], ids=["numpy", "onnx"])
def test_an_output_goes_to_the_memory_that_is_bound(ours: Any, element_type: Any) -> None:
    for ort in (real, ours):
        made, into = session(ort), np.zeros((2, 3), np.float32)
        binding = made.io_binding()
        for name, array in feed().items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y", "cpu", 0, element_type, (2, 3), into.ctypes.data)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(into, np.maximum(X, 0) * 2)


def test_bindings_that_do_not_fit(ours: Any) -> None:
    binding = session(ours).io_binding()
    with pytest.raises(AicoreError, match="no input is called 'nope'"):
        binding.bind_cpu_input("nope", X)
    with pytest.raises(AicoreError, match="no output is called 'nope'"):
        binding.bind_output("nope")
    with pytest.raises(AicoreError, match="memory of 'fake' by its address"):
        binding.bind_input("x", "fake", 0, np.float32, (2, 3), X.ctypes.data)
    with pytest.raises(AicoreError, match="no plugin drives device 'npu'"):
        binding.bind_output("y", "npu")
    with pytest.raises(AicoreError, match="77 is no element type"):
        binding.bind_input("x", "cpu", 0, 77, (2, 3), X.ctypes.data)
    for name, array in feed().items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_shape_and_type((9, 9)))
    with pytest.raises(AicoreError, match=r"output 'y' is float32\[2, 3\], bound is float32\[9, 9\]"):
        session_of(binding).run_with_iobinding(binding)


def session_of(binding: Any) -> Any:
    return binding._session


def test_ort_values(ours: Any) -> None:
    def client(ort: Any) -> list[Any]:
        array = X.copy()  # the real one does not keep it alive
        value = ort.OrtValue.ortvalue_from_numpy(array)
        value.update_inplace(X * 2)
        questions = ("shape", "data_type", "element_type", "device_name", "has_value", "is_tensor", "is_sparse_tensor",
                     "is_tensor_sequence", "tensor_size_in_bytes")  # fmt: skip
        said = [getattr(value, question)() for question in questions]
        return [array, value.numpy(), *said]

    for a, b in zip(client(ours), client(real), strict=True):
        same(a, b)
    array = X.copy()
    value = ours.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    before = value.numpy()
    value.update_inplace(X * 2)
    same(before, X)  # the real one changes arrays that it gave away
    assert np.shares_memory(np.from_dlpack(value), array)
    assert ours.OrtValue.ortvalue_from_shape_and_type((2,), TensorProto.INT64).data_type() == "tensor(int64)"
    with pytest.raises(AicoreError, match=r"float32\[2, 3\], it cannot become float64\[2, 3\]"):
        value.update_inplace(X.astype(np.float64))
