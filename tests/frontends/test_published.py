"""The copy of what onnx publishes: as the package has it, and enough to read models without the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, parser

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx import load_model, protos, published, schema
from aicore.frontends.onnx.attributes import REPEATED
from tools import onnx_published

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
COPY = published.published()
SCHEMAS = [one for one in defs.get_all_schemas_with_history() if one.domain in COPY.opsets]


def test_the_file_is_what_the_tool_writes() -> None:
    if json.loads(published.FILE.read_text())["onnx"] != onnx.__version__:
        pytest.skip("the copy is of another version of onnx")
    assert published.FILE.read_text(encoding="utf-8") == onnx_published.text(onnx_published.content())


@pytest.mark.parametrize("domain", COPY.opsets)
def test_every_operator_is_as_the_package_has_it(domain: str) -> None:
    of_both = [s for s in SCHEMAS if s.domain == domain and s.since_version <= COPY.opsets[domain]]
    assert len(of_both) > 20
    for one in of_both:
        assert schema.signature(one.name, domain, one.since_version) == schema.of_schema(one)


def test_every_opset_has_the_version_in_force() -> None:
    for opset in range(6, COPY.opsets[""] + 1):
        found = schema.signature("Clip", "", opset)
        assert found is not None
        assert found.since == defs.get_schema("Clip", opset, "").since_version


def test_an_operator_that_is_younger_than_the_opset() -> None:
    assert schema.signature("Gelu", "", 19) is None
    assert schema.is_known("Gelu", "")
    assert schema.signature("Nonsense", "", 19) is None
    assert not schema.is_known("Nonsense", "")


def test_what_the_copy_lacks_is_asked_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    older = COPY._replace(ir_version=9, opsets={"": 19, "ai.onnx.ml": 3})
    monkeypatch.setattr(schema, "published", lambda: older)
    monkeypatch.setattr(published, "published", lambda: older)
    schema.signature.cache_clear()
    try:
        found = schema.signature("Gelu", "", 20)
        assert found is not None
        assert found == schema.of_schema(defs.get_schema("Gelu", 20, ""))
        assert schema.signature("Adam", "ai.onnx.preview.training", 1) is not None
        assert schema.is_known("Adam", "ai.onnx.preview.training")
        assert published.newest_opset(19) == 19
        assert published.newest_opset(20) == defs.onnx_opset_version()
        assert published.newest_ir_version(9) == 9
        assert published.newest_ir_version(10) == onnx.IR_VERSION
    finally:
        schema.signature.cache_clear()


def test_defaults_are_tuples_as_those_of_nodes() -> None:
    found = schema.signature("TfIdfVectorizer", "", 9)
    assert found is not None
    for one in SCHEMAS:
        signature = schema.signature(one.name, one.domain, one.since_version)
        assert signature is not None
        for attribute in signature.defaults.values():
            assert isinstance(attribute.value, tuple) == (attribute.type in REPEATED)


def test_a_message_of_the_package_is_read_as_well() -> None:
    model = parser.parse_model(MODEL)
    ours = protos.ModelProto.FromString(model.SerializeToString())
    assert type(ours) is not type(model)
    for one in (model, ours, model.SerializeToString()):
        (node,) = load_model(one).nodes
        assert type(node.op).__name__ == "Relu"


def test_sub_graphs_and_sparse_tensors_of_the_package() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = a () => (float[2] p) { p = Neg(x) },
            else_branch = b () => (float[2] q) { q = Abs(x) }
        >
    }"""
    model = parser.parse_model(text)
    assert load_model(model) is not None
    sparse = onnx.helper.make_sparse_tensor(
        onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [5.0]),
        onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [1], [1]),
        [2],
    )
    model = parser.parse_model(MODEL.replace("Relu(x)", "Add(x, s)"))
    model.graph.sparse_initializer.append(sparse)
    (node,) = load_model(model).nodes
    constant = node.inputs[1]
    assert constant is not None
    assert constant.constant is not None
    assert np.array_equal(constant.constant.array, np.array([0, 5], np.float32))


@pytest.mark.parametrize(
    "other", [onnx.GraphProto(), onnx.NodeProto(), onnx.ModelProto, protos.ModelProto, object(), 3]
)
def test_another_message_is_no_model(other: Any) -> None:
    with pytest.raises(TypeError, match=r"a model is a path, bytes or an onnx\.ModelProto"):
        load_model(other)
    assert not protos.is_message(other, "ModelProto")


def test_versions_that_nobody_knows() -> None:
    model = parser.parse_model(MODEL)
    model.ir_version = 999
    with pytest.raises(UnsupportedError, match=r"IR version 999 is outside 3 to \d+"):
        load_model(model)
    model.ir_version = 8
    model.opset_import[0].version = 999
    with pytest.raises(UnsupportedError, match=r"opset 999 is not among 1 to \d+, which aicore and the installed onnx"):
        load_model(model)


def test_damaged_bytes() -> None:
    with pytest.raises(ModelError, match="is no ONNX model, or is damaged"):
        load_model(parser.parse_model(MODEL).SerializeToString()[:-3])


@pytest.mark.parametrize("first", ["import onnx", "pass"])
def test_a_process_reads_and_runs_a_model_without_the_package(first: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    code = f"""
{first}
import sys
import numpy as np
import aicore
y = aicore.compile({str(path)!r}, "cpu").run({{"x": np.array([-1, 2], np.float32)}})["y"]
print(y.tolist(), "onnx" in sys.modules)
import onnx
assert onnx.load({str(path)!r}).graph.node[0].op_type == "Relu"  # both can be in one process
"""
    environment = {**os.environ, "AICORE_PLUGINS": "cpu_numpy"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == f"[0.0, 2.0] {first == 'import onnx'}"
