"""What is no model, and models of the wrong versions, give a typed error that says so."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx import load_model
from tests.frontends.models import model, node

RELU = model([node("Relu", ["x"], ["y"], name="first")], {"x": [2, "N"]}, ["y"])


def test_paths_bytes_and_protos_are_sources(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(RELU.SerializeToString())
    for source in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        memoryview(path.read_bytes()),
        RELU,
    ):
        graph = load_model(source)
        assert [type(n.op).__name__ for n in graph.nodes] == ["Relu"]
        assert [str(v.type) for v in graph.inputs] == ["float32[2,N]"]
        assert graph.nodes[0].origin.names() == ["first"]


def test_another_kind_of_source_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"a path, bytes or an onnx.ModelProto, not BytesIO"):
        load_model(io.BytesIO())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"this is no protobuf at all", "is no ONNX model, or is damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "is no ONNX model, or is damaged"),
        (b"\x0a\x00", "is no ONNX model"),
        (RELU.SerializeToString()[:-3], "is no ONNX model, or is damaged"),
    ],
    ids=["empty", "text", "picture", "another protobuf", "truncated"],
)
def test_a_file_that_is_no_model(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"bad.onnx: {message}"):
        load_model(path)
    with pytest.raises(ModelError, match=f"the given bytes: {message}"):
        load_model(content)


def test_every_truncation_of_a_model_is_an_error_or_a_smaller_model() -> None:
    content = RELU.SerializeToString()
    for end in range(len(content)):
        with pytest.raises((ModelError, UnsupportedError)):
            load_model(content[:end])


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx: there is no such file"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is not a file"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="there is no such file"):
        load_model("nul\0.onnx")


def test_a_file_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)  # sparse: takes no disk
    with pytest.raises(ModelError, match="larger than a protobuf can be"):
        load_model(path)


def changed(**fields: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(RELU)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def test_versions_that_cannot_be_read() -> None:
    with pytest.raises(UnsupportedError, match="IR version 999 is outside 3 to"):
        load_model(changed(ir_version=999))
    with pytest.raises(UnsupportedError, match="IR version 2 is outside"):
        load_model(changed(ir_version=2))
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(UnsupportedError, match=f"opset 999 is not among 1 to {newest}"):
        load_model(model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], opset=999))


def test_a_model_without_ir_version() -> None:
    copy = changed()
    copy.ClearField("ir_version")
    with pytest.raises(ModelError, match="it has no IR version"):
        load_model(copy)


def test_opset_imports_that_make_no_sense() -> None:
    copy = changed()
    del copy.opset_import[:]
    with pytest.raises(ModelError, match="imports no operator set"):
        load_model(copy)
    copy = changed()
    copy.opset_import.add(domain="ai.onnx", version=17)
    with pytest.raises(ModelError, match=r"imports versions 18 and 17 of 'ai.onnx'"):
        load_model(copy)
    copy.opset_import[1].version = -4
    with pytest.raises(ModelError, match="imports version -4"):
        load_model(copy)


def test_an_old_opset_is_read_where_its_operators_have_not_changed() -> None:
    old = model(
        [node("Not", ["x"], ["y"])], [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.BOOL, [2])], ["y"]
    )
    old.opset_import[0].version = 1
    assert [type(n.op).__name__ for n in load_model(old).nodes] == ["Not"]
    changed_since = model([node("Relu", ["x"], ["y"], name="r")], {"x": [1]}, ["y"], opset=5)
    with pytest.raises(UnsupportedError, match="Relu 'r': Relu of opset 1 is not supported"):
        load_model(changed_since)


def test_a_name_that_is_not_utf8() -> None:
    content = RELU.SerializeToString().replace(b"first", b"\xff\xfe\xfdst")
    with pytest.raises(ModelError, match="not UTF-8"):
        load_model(content)
