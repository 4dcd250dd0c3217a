"""Raw data that are taken out of a model's bytes: nothing of the model changes, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from aicore.errors import ModelError
from aicore.frontends.onnx import load_model
from aicore.frontends.onnx.raw_data import split_raw_data
from aicore.ir import constants
from tests.frontends.models import model, node

RNG = np.random.default_rng(5)
ARRAYS = {
    "large": RNG.normal(size=(64, 9)).astype(np.float32),
    "small": RNG.normal(size=9).astype(np.float32),
    "larger": RNG.normal(size=(64, 64, 9)).astype(np.float32),
}
MODEL = model(
    [node("Add", ["x", "large"], ["h"]), node("Mul", ["h", "small"], ["i"]), node("Sub", ["i", "larger"], ["y"])],
    {"x": ["N", 64, 9]},
    ["y"],
    ARRAYS,
)
TAG = {"graph": b"\x3a", "initializer": b"\x2a", "raw_data": b"\x4a"}
"""Number and kind of the fields, in the bytes of a model."""


def _varint(number: int, extra: bool = False) -> bytes:
    """extra: with one group more than the number needs, as some writers have it who learn lengths last."""
    groups = []
    while number >= 128 or extra:
        groups.append(number % 128 + 128)
        extra = extra and number >= 128
        number //= 128
    return bytes([*groups, number])


def _field(name: str, content: bytes, extra: bool = False) -> bytes:
    return TAG[name] + _varint(len(content), extra) + content


def test_the_rest_and_the_data_are_the_model() -> None:
    rest, data = split_raw_data(MODEL.SerializeToString())
    assert sorted(data) == [0, 2]  # the second one is small
    assert len(rest) < 1000
    proto = onnx.ModelProto.FromString(rest)
    for number, raw in data.items():
        assert proto.graph.initializer[number].raw_data == b""
        proto.graph.initializer[number].raw_data = bytes(raw)
    assert proto == MODEL


def test_files_and_bytes_give_the_numbers_of_the_proto(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(MODEL, path)
    for source in (path, path.read_bytes(), MODEL):
        graph = load_model(source)
        found = {value.name: value.constant for value in constants(graph)}
        for name, array in ARRAYS.items():
            assert found[name] is not None
            np.testing.assert_array_equal(found[name].array, array)
            assert not found[name].array.flags.writeable
            assert found[name].array.flags.aligned


def test_a_file_that_changes_later_does_not_change_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(MODEL, path)
    graph = load_model(path)
    path.write_bytes(b"")
    for value in constants(graph):
        assert value.constant is not None
        np.testing.assert_array_equal(value.constant.array, ARRAYS[value.name])


def _other_graph() -> bytes:
    """Two graphs in one model: protobuf joins them."""
    return MODEL.SerializeToString() + _field("graph", _field("initializer", _tensor("more", ARRAYS["large"])))


def _tensor(name: str, array: np.ndarray) -> bytes:
    content: bytes = numpy_helper.from_array(array, name).SerializeToString()
    return content


def _graph_with(initializer: bytes, extra: bool = False) -> bytes:
    """MODEL with another initializer in front of its own."""
    model = onnx.ModelProto.FromString(MODEL.SerializeToString())
    graph = _field("initializer", initializer, extra) + model.graph.SerializeToString()
    model.ClearField("graph")
    return model.SerializeToString() + _field("graph", graph, extra)


@pytest.mark.parametrize(
    "content",
    [
        _other_graph(),
        _graph_with(_tensor("more", ARRAYS["large"])),
        _graph_with(_tensor("more", ARRAYS["large"]), extra=True),
        _graph_with(_tensor("more", ARRAYS["large"] * 2) + _field("raw_data", ARRAYS["large"].tobytes())),
        _graph_with(_field("raw_data", ARRAYS["large"].tobytes()) + _tensor("more", ARRAYS["large"])),
        _graph_with(_tensor("more", ARRAYS["large"]) + b"\xfa\x07\x03abc"),
    ],
    ids=["two graphs", "one more", "long lengths", "data twice", "data first", "unknown field"],
)
def test_whatever_protobuf_reads_is_read_alike(content: bytes) -> None:
    proto = onnx.ModelProto.FromString(content)
    wanted = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    rest, data = split_raw_data(content)
    read = onnx.ModelProto.FromString(rest)
    assert [tensor.name for tensor in read.graph.initializer] == list(wanted)
    for number, tensor in enumerate(read.graph.initializer):
        if number in data:
            tensor.raw_data = bytes(data[number])
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), wanted[tensor.name])


def test_an_external_tensor_with_raw_data_is_refused_as_ever() -> None:
    tensor = onnx.TensorProto.FromString(_tensor("large", ARRAYS["large"]))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    proto = onnx.ModelProto.FromString(MODEL.SerializeToString())
    proto.graph.initializer[0].CopyFrom(tensor)
    with pytest.raises(ModelError, match="has both external and raw data"):
        load_model(proto.SerializeToString())


def test_data_of_another_size_than_the_shape_are_refused_as_ever() -> None:
    proto = onnx.ModelProto.FromString(MODEL.SerializeToString())
    proto.graph.initializer[0].raw_data += b"1234"
    with pytest.raises(ModelError, match=r"'large': shape \(64, 9\) of float32 needs 2304 bytes, the file has 2308"):
        load_model(proto.SerializeToString())


def test_every_truncation_is_left_to_protobuf() -> None:
    content = MODEL.SerializeToString()
    for end in range(0, len(content), 997):
        assert split_raw_data(content[:end]) == (content[:end], {})


def test_overridable_initializers_keep_their_numbers_apart() -> None:
    proto = onnx.ModelProto.FromString(MODEL.SerializeToString())
    proto.graph.input.append(onnx.helper.make_tensor_value_info("large", onnx.TensorProto.FLOAT, [64, 9]))
    graph = load_model(proto.SerializeToString(), overridable=["large"])
    assert [value.name for value in graph.inputs] == ["x", "large"]
    found = {value.name: value.constant for value in constants(graph)}
    assert found["larger"] is not None
    np.testing.assert_array_equal(found["larger"].array, ARRAYS["larger"])
