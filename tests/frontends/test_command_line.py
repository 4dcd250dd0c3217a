"""On the command line a bad model is one line that names the trouble: status 2, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from aicore.cli import main
from tests.frontends.models import model, node

CYCLE = model([node("Relu", ["y"], ["y"], name="self")], {"x": [1]}, ["y"])
UNKNOWN = model([node("Frob", ["x"], ["y"], name="odd")], {"x": [1]}, ["y"])
GHOST = model([node("Add", ["x", "ghost"], ["y"], name="sum")], {"x": [1]}, ["y"])


def outside() -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"], {"w": 1.0})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    return made


BAD: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "truncated": (lambda: CYCLE.SerializeToString()[:-2], ("model.onnx", "damaged")),
    "garbage": (lambda: b"not a model", ("model.onnx", "damaged")),
    "cycle": (CYCLE.SerializeToString, ("Relu 'self'", "cycle")),
    "unknown operator": (UNKNOWN.SerializeToString, ("Frob 'odd'", "'Frob'")),
    "undefined operand": (GHOST.SerializeToString, ("Add 'sum'", "'ghost'")),
    "external data": (lambda: outside().SerializeToString(), ("tensor 'w'", "leaves the model's folder")),
}


@pytest.mark.parametrize("command", ["run", "inspect"])
@pytest.mark.parametrize("case", BAD)
def test_bad_models(case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, wanted = BAD[case]
    path = tmp_path / "model.onnx"
    path.write_bytes(content())
    arguments = [command, str(path)] + (["--random"] if command == "run" else [])
    assert main(arguments) == 2
    err = " ".join(capsys.readouterr().err.split())
    for part in wanted:
        assert part in err
    assert "Traceback" not in err
