"""`aicore inspect`: the summary, its parts, and why a rule did not match."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from aicore.cli import main
from tests.onnx_models import model, value

Output = Callable[..., str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = relu(conv(x, w) + b), then its mean, with a node that does nothing in between."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Conv", ["same", "w"], ["c"], name="conv"),
        helper.make_node("Add", ["c", "b"], ["s"], name="bias"),
        helper.make_node("Relu", ["s"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="pool"),
    ]
    inputs = [value("x", shape=["batch", 3, "height", "width"])]
    made = model(nodes, inputs, [value("y")], producer_name="a producer", name="a graph")
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "b": rng.standard_normal((4, 1, 1))}
    made.graph.initializer.extend(numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items())
    file = tmp_path / "model.onnx"
    file.write_bytes(made.SerializeToString())
    return file


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], path: Path) -> Output:
    """Inspect the model, which must succeed and say just `err` on stderr, and return what it prints."""

    def run(*arguments: str, err: str = "") -> str:
        status = main(["inspect", str(path), *arguments])
        out, said = capsys.readouterr()
        assert (status, said) == (0, err)
        return out

    return run


SIZES = ("--shape", "height=8", "--shape", "width=8")
MISSING = (
    "chosen: dim 'batch' of input 'x' = 1\n"
    "for kernels and memory, sizes are missing: input 'x' is float32[batch,3,height,width]; "
    "give --shape x=1x3xSIZExSIZE, or --shape height=SIZE --shape width=SIZE\n"
)


def test_the_summary(output: Output, path: Path) -> None:
    text = output(*SIZES)
    for word in (
        f"{path}: a graph, a producer, ai.onnx opset 17",
        "float32[batch,3,height,width]",
        "112 parameters in 2 constants, 448 B",
        "remove-identities",
        "placement: cpu_numpy ",
        "memory on cpu: arena ",
        "chosen: dim 'batch' of input 'x' = 1",
    ):
        assert word in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert rows["Identity"] == ["1"]
    assert rows["all"][0] == "5"


def test_the_summary_needs_no_sizes(output: Output) -> None:
    text = output()
    assert "for kernels and memory, sizes are missing" in text
    assert "--shape x=1x3xSIZExSIZE, or --shape height=SIZE --shape width=SIZE" in text
    assert "placement" not in text
    answer = json.loads(output("--json"))
    assert (answer["placement"], answer["memory"], answer["kernels"]) == (None, [], [])
    assert len(answer["missing"]) == 1


def test_the_summary_for_scripts(output: Output) -> None:
    answer = json.loads(output(*SIZES, "--json", "--target", "fake"))
    assert answer["target"].startswith("fake")
    assert answer["inputs"] == [{"name": "x", "type": "float32[batch,3,height,width]"}]
    assert answer["parameters"] == {"constants": 2, "elements": 112, "bytes": 448}
    assert answer["nodes"]["before"] == {"Identity": 1, "Conv": 1, "Add": 1, "Relu": 1, "GlobalAveragePool": 1}
    assert "Identity" not in answer["nodes"]["after"]
    assert sum(kernel["nodes"] for kernel in answer["kernels"]) == sum(answer["nodes"]["after"].values())
    assert {"fold-constants", "fuse-linear", "remove-dead"} <= {row["name"] for row in answer["passes"]}
    assert answer["metadata"]["producer_name"] == "a producer"


@pytest.mark.parametrize(
    ("moment", "ops"), [("before", ["Identity", "Conv", "Add", "Relu"]), ("after", ["GlobalAveragePool"])]
)
def test_the_graph_as_text(output: Output, moment: str, ops: list[str]) -> None:
    text = output("--ir", moment, err=MISSING if moment == "after" else "")
    for op in ops:
        assert op in text
    assert ("Identity" in text) == (moment == "before")
    assert text.startswith("graph")
    assert json.loads(output("--ir", moment, "--json"))["ir"].strip() == text.strip()


def test_the_graph_for_concrete_shapes_says_what_was_chosen_beside_it(output: Output) -> None:
    text = output("--ir", "after", *SIZES, err="chosen: dim 'batch' of input 'x' = 1\n")
    assert "float32[1,4,1,1]" in text
    assert "chosen" not in text
    answer = json.loads(output("--ir", "after", *SIZES, "--json"))
    assert (answer["ir"].strip(), answer["missing"]) == (text.strip(), [])
    assert answer["chosen"] == ["dim 'batch' of input 'x' = 1"]


def test_passes_with_rules_matches_and_times(output: Output) -> None:
    lines = output("--passes").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["remove-identities"][0] == "1"
    assert rows["remove-identities"][1:4] == ["5", "->", "4"]
    assert rows["fuse-ConvAct"][0] == "fuse-linear"
    answer = json.loads(output("--passes", "--json"))["passes"]
    fuse = next(row for row in answer if row["name"] == "fuse-linear")
    assert {rule["name"] for rule in fuse["rules"]} >= {"fuse-ConvAct", "matmul-bias-to-gemm"}
    assert all(row["ms"] >= 0 for row in answer)


def test_kernels_with_candidates(output: Output) -> None:
    text = output("--kernels", *SIZES)
    assert re.search(r"\(from pool\) on cpu: globalaveragepool_\w+\n    globalaveragepool_\w+: ", text)
    kernels = json.loads(output("--kernels", *SIZES, "--json"))["kernels"]
    pool = next(kernel for kernel in kernels if kernel["kernel"].startswith("globalaveragepool_"))
    assert any(candidate["kernel"] == pool["kernel"] and candidate["usable"] for candidate in pool["candidates"])


def test_memory_with_its_peak(output: Output) -> None:
    text = output("--memory", *SIZES)
    assert "arena on cpu: " in text
    assert "lost to fragmentation" in text
    assert "peak at step " in text
    assert "576 B" in text  # 4 maps of 6 x 6, in whatever layout
    (memory,) = json.loads(output("--memory", *SIZES, "--json"))["memory"]
    assert memory["arena"] >= memory["lower_bound"] == max(memory["alive"]) > 0
    assert {life["kind"] for life in memory["lifetimes"]} >= {"buffer"}
    stored = {buffer["storage"] for buffer in memory["buffers"]}
    assert {"input", "output", "constant", "arena"} >= stored >= {"input", "output", "arena"}


def test_parts_that_need_sizes_ask_for_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("--kernels", "--memory"):
        assert main(["inspect", str(path), part]) == 2
        assert "--shape height=SIZE --shape width=SIZE" in capsys.readouterr().err


def test_several_parts(output: Output) -> None:
    answer = json.loads(output("--passes", "--memory", *SIZES, "--json"))
    assert set(answer) == {"passes", "memory"}


def test_why_a_rule_did_not_match(output: Output) -> None:
    text = output("--why-not", "fuse-GemmAct")
    # fuse-ConvAct comes first and has taken the only activation.
    assert text == "fuse-GemmAct matched 0 times\nnearest miss: there is no Activation in the graph\n"
    answer = json.loads(output("--why-not", "fuse-GemmAct", "--json"))
    assert answer == {"rule": "fuse-GemmAct", "matches": 0, "why_not": "there is no Activation in the graph"}


def test_the_nearest_miss_names_the_node_and_the_guard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="fc"),
        helper.make_node("Add", ["p", "b"], ["y"], name="sum"),
    ]
    inputs = [value("x", shape=[2, 2, 3]), value("w", shape=[3, 4]), value("b", shape=[4])]
    path = tmp_path / "dense.onnx"
    path.write_bytes(model(nodes, inputs, [value("y", shape=[2, 2, 4])]).SerializeToString())
    assert main(["inspect", str(path), "--why-not", "matmul-bias-to-gemm"]) == 0
    text = capsys.readouterr().out
    for word in ("matched 0 times", "Add 'y' (from sum)", "the factors are not matrices", "float32[2,2,3]"):
        assert word in text


def test_a_rule_that_always_matched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    inputs = [value("x", shape=[2, 3]), value("w", shape=[3, 4]), value("b", shape=[4])]
    path = tmp_path / "dense.onnx"
    path.write_bytes(model(nodes, inputs, [value("y", shape=[2, 4])]).SerializeToString())
    assert main(["inspect", str(path), "--why-not", "matmul-bias-to-gemm"]) == 0
    assert capsys.readouterr().out == "matmul-bias-to-gemm matched 1 time\nevery attempt matched\n"


def test_an_unknown_rule_lists_the_rules(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--why-not", "fuse-convact"]) == 2
    message = capsys.readouterr().err
    for word in ("'fuse-convact'", "did you mean 'fuse-ConvAct'?", "matmul-bias-to-gemm", "compose-transposes"):
        assert word in message


def test_a_model_that_is_optimised_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model([helper.make_node("Identity", ["x"], ["y"])], [value("x", shape=[2])], [value("y", shape=[2])])
    path = tmp_path / "nothing.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["inspect", str(path)]) == 0
    assert "0 parameters in 0 constants" in capsys.readouterr().out
    assert main(["inspect", str(path), "--memory", "--kernels"]) == 0


def test_nodes_of_branches_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def branch(op: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["x"], ["r"])], op, [], [value("r", shape=[2])])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    made = model([node], [value("c", 9, []), value("x", shape=[2])], [value("y", shape=[2])])
    path = tmp_path / "branches.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"]["before"] == {"If": 1, "Relu": 1, "Neg": 1}
