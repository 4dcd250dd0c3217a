"""The matrix: what it holds, that it travels in a file, and models node by node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ModelError
from aicore.ir import Builder
from aicore.plugins import PluginRegistry
from aicore.testing import Outcome, Reference, conformance_cases
from aicore.testing.models import compare_model
from aicore.testing.parity import Matrix, compare_cases, find_targets, to_json
from aicore.testing.repro import shows
from aicore.testing.saved import load_matrix, merge, save_matrix
from aicore.testing.storage import from_plain, to_plain
from tests.testing import backends
from tests.testing.backends import backend

CASES = [c for c in conformance_cases({"Relu": ops.Relu, "Add": ops.Add}) if c.layout == "dense"]


def matrix(registry: PluginRegistry, *names: str) -> Matrix:
    columns, targets = find_targets(names, registry)
    return compare_cases(CASES, columns, targets, Reference(registry), "some ops")


@pytest.fixture(scope="module")
def three() -> Matrix:
    """The CPU, a backend with one kernel that is wrong, and one that is not there."""
    return matrix(backend([backends.relu_wrong]), "cpu:reference", "npu", "tpu")


def test_a_column_that_cannot_be_used_says_why(three: Matrix) -> None:
    assert [column.name for column in three.columns] == ["cpu:reference", "npu", "tpu"]
    assert "no plugin drives device 'tpu'" in three.columns[2].reason
    assert three.score("tpu").counts.total() == 0
    assert three.rows()[0].cell("tpu") is None


def test_rows_are_op_by_dtype_by_kind(three: Matrix) -> None:
    keys = [(row.name, row.dtype, row.kind) for row in three.rows()]
    assert len(set(keys)) == len(keys)
    assert keys[:3] == [("Relu", "float32", "plain"), ("Relu", "float32", "scalar"), ("Relu", "float32", "empty")]
    assert sum(len(row.entries) for row in three.rows()) == len(CASES)


def test_cells(three: Matrix) -> None:
    row = three.rows()[0]
    right, wrong = row.cell("cpu:reference"), row.cell("npu")
    assert right is not None
    assert wrong is not None
    assert (right.verdict.outcome, right.versus) == (Outcome.PASSED, None)
    assert (wrong.verdict.outcome, wrong.worst) == (Outcome.FAILED, "Relu-float32-0")
    assert "1 of 30 elements are wrong" in wrong.verdict.reason
    assert wrong.versus is not None
    assert (wrong.versus.wrong, wrong.versus.max_ulps) == (2, 1)  # from the first column, in both copies of the op
    assert not three.is_right
    assert matrix(backend([backends.relu]), "cpu", "npu").is_right


def test_plain_data(three: Matrix) -> None:
    data = to_json(three)
    assert data["right"] is False
    assert data["columns"][1]["outcomes"]["failed"] > 0
    cell = data["rows"][0]["cells"]["npu"]
    assert (cell["outcome"], cell["outcomes"], cell["kernels"]) == ("failed", {"failed": 1}, ["relu_off_by_one_place"])
    assert cell["max_ulps"] == 1
    identifier, _, reference, npu, tpu = data["rows"][0]["cases"][0]
    assert (identifier, reference[0], npu[0], tpu) == ("Relu-float32-0", "passed", "failed", None)


def test_a_matrix_travels_in_a_file(three: Matrix, tmp_path: Path) -> None:
    save_matrix(three, tmp_path / "there.npz")
    read = load_matrix(tmp_path / "there.npz")
    assert read.columns == three.columns
    assert to_json(read) == to_json(three)
    before, after = three.entries[0].verdicts["npu"], read.entries[0].verdicts["npu"]
    assert [a.tolist() for a in after.outputs] == [a.tolist() for a in before.outputs]


def test_targets_of_two_machines_beside_each_other(tmp_path: Path) -> None:
    save_matrix(matrix(backend([backends.relu_wrong]), "npu"), tmp_path / "there.npz")
    here = matrix(backend([backends.relu]), "npu", "cpu")
    both = merge(here, load_matrix(tmp_path / "there.npz"), "there")
    assert [column.name for column in both.columns] == ["npu", "cpu", "npu@there"]
    assert both.columns[2].source == "there"
    entry = both.entries[0]
    assert {name: str(v.outcome) for name, v in entry.verdicts.items()} == {
        "npu": "passed",
        "cpu": "passed",
        "npu@there": "failed",
    }
    assert entry.versus["npu@there"].wrong == 2
    assert entry.versus["cpu"].wrong == 0


def test_other_operands_cannot_be_compared() -> None:
    here = matrix(backend([backends.relu]), "npu")
    entries = tuple(replace(entry, digest="other") for entry in here.entries[:2])
    both = merge(here, replace(here, entries=entries), "there")
    assert "other operands were used there" in both.entries[0].verdicts["npu@there"].reason
    assert "npu@there" not in both.entries[0].versus
    assert "npu@there" not in both.entries[2].verdicts
    assert both.remarks[-1] == f"there has no results for {len(CASES) - 2} of {len(CASES)} entries"


@pytest.mark.parametrize("damage", ["missing", "text", "other", "format"])
def test_a_file_that_is_none(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "there.npz"
    match damage:
        case "text":
            file.write_text("hello")
        case "other":
            np.savez(file, a=np.zeros(2))
        case "format":
            np.savez(file, about=np.frombuffer(b'{"format": 7}', np.uint8))
    with pytest.raises(ModelError, match=r"there\.npz"):
        load_matrix(file)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([[1, 2]], ml_dtypes.int4),
        np.array(["a", "ü"], object),
        np.array(True),
        np.zeros((0, 3), np.float16),
    ],
    ids=lambda array: str(array.dtype),
)
def test_every_element_type_is_stored(array: backends.Array, tmp_path: Path) -> None:
    plain, name = to_plain(array)
    np.save(tmp_path / "a.npy", plain, allow_pickle=False)
    back = from_plain(np.load(tmp_path / "a.npy", allow_pickle=False), name)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_a_model_names_its_first_divergent_node() -> None:
    b = Builder()
    x = b.input("x", "float32", ("n", 4))
    h = b.Relu(b.Add(x, x))
    graph = b.graph((x,), {"y": b.Tanh(b.Relu(b.Neg(h)))})
    feeds = {"x": np.float32([[-1, -2, -3, 4], [5, 6, 7, 8]])}
    registry = backend([backends.relu_wrong])
    columns, targets = find_targets(["cpu", "npu"], registry)
    said: list[str] = []
    found, faults = compare_model(
        graph, feeds, columns, targets, Reference(registry), "net", lambda done, total, what: said.append(what)
    )
    rows = found.rows()
    assert rows[0].kind == "model"
    assert [row.name.split()[1] for row in rows[1:]] == ["Add", "Relu", "Neg", "Relu", "Tanh"]
    assert [found.entries[i].verdicts["npu"].outcome for i in (2, 4)] == [Outcome.FAILED, Outcome.FAILED]
    assert found.remarks[0].startswith("cpu: no node diverges; the largest relative error, ")
    assert found.remarks[1].startswith("npu: first divergent node: 1. Relu relu: 1 of 8 elements are wrong")
    assert said == ["Add-float32-0", "Relu-float32-1", "Neg-float32-2", "Relu-float32-3", "Tanh-float32-4"]
    # One unit in the last place is lost in the whole, which allows several; the node's own repro is there all the same.
    assert found.entries[0].verdicts["npu"].outcome is not Outcome.FAILED
    assert list(faults) == ["npu"]
    assert faults["npu"].kind == "kernel"
    assert faults["npu"].text.startswith("Relu 'relu': relu_off_by_one_place on npu: 1 of 8 elements are wrong")
    assert shows(faults["npu"].repro, targets[1])


def test_a_model_that_is_wrong_as_a_whole_is_charged_to_someone() -> None:
    b = Builder()
    x = b.input("x", "float32", (2, 4))
    graph = b.graph((x,), {"y": b.Sub(b.Relu(x), b.constant(np.ones((2, 4), np.float32)))})
    registry = backend([backends.relu_raising])
    columns, targets = find_targets(["npu"], registry)
    feeds = {"x": np.ones((2, 4), np.float32)}
    found, faults = compare_model(graph, feeds, columns, targets, Reference(registry), "net")
    assert not found.is_right
    assert faults["npu"].kind == "kernel"
    assert found.remarks[-1].startswith("npu: to blame: Relu 'relu': relu_raising on npu: Relu 'relu': kernel")
