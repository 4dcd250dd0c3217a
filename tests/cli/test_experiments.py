"""`aicore ab`, `aicore bisect`, `aicore tune --whole-graph`, and what `aicore inspect` shows of passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import parser

from aicore.cli import main
from aicore.experiments import bisecting, with_without
from aicore.frontends.onnx import export_model
from aicore.plugins import PluginRegistry
from aicore.tuning import Comparison
from tests.experiments.planted import pass_of, registry_with, relu_to_max, tower
from tests.experiments.test_ab import exp_of_log, no_product

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 4, 12, 12] x) => (float[] y) {
  w = Constant<value = float[4, 4, 1, 1] {1,2,3,4, 5,6,7,8, 1,2,3,4, 5,6,7,9}>()
  c = Conv(x, w) a = Relu(c) b = MaxPool<kernel_shape = [3, 3]>(a) e = Exp(b) l = Log(e) y = Softmax(l) }"""


class Finished(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Call `aicore` in this process, with a folder of caches of its own."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AICORE_TARGET", "cpu")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Finished:
        return Finished(main(list(arguments)), *capsys.readouterr())

    return run


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return str(path)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[PluginRegistry], None]:
    """Make a registry the one that is installed."""

    def install(registry: PluginRegistry) -> None:
        monkeypatch.setattr(with_without, "plugin_registry", lambda: registry)

    return install


# ---- ab


def test_ab_as_table_and_json(command_line: Command, model: str) -> None:
    found = command_line("ab", model, "--rule", "fuse-ConvAct", "--seconds", "0.1", "--shape", "n=2", "--threads", "1")
    assert found.code in (0, 1), found.err
    assert "fuse-ConvAct on cpu, against the same without fuse-ConvAct" in found.out
    assert "95 % confidence" in found.out
    again = command_line("ab", model, "--pass", "fuse-linear", "--seconds", "0.1", "--json")
    data = json.loads(again.out)
    assert data["verdict"] in {"keep", "reject", "no difference"}
    assert data["without"]["nodes"] > data["with"]["nodes"]
    assert data["time"]["pairs"] >= 8
    assert data["chosen"] == ["dim 'n' of input 'x' = 1"]


def test_ab_rejects_with_status_1_and_keeps(
    command_line: Command, tmp_path: Path, planted: Callable[[PluginRegistry], None]
) -> None:
    path = tmp_path / "product.onnx"
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2, 3] x, float[3, 3] w) => (float[2, 3] y) { y = MatMul(x, w) }"""
    onnx.save(parser.parse_model(text), path)
    planted(registry_with(pass_of("planted", no_product)))
    found = command_line("ab", str(path), "--rule", "no-product", "--keep")
    assert found.code == 1
    assert "reject: its results are wrong: " in found.out
    assert "kept: -no-product from now on" in found.out
    assert (tmp_path / "cache" / "tuning.sqlite").is_file()
    planted(registry_with(pass_of("planted", exp_of_log)))
    same = command_line("ab", str(path), "--rule", "exp-of-log")
    assert (same.code, "no difference: the program is the same" in same.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "what is to be judged? give one of --rule NAME and --pass NAME"),
        (("--rule", "a", "--pass", "b"), "what is to be judged? give one of --rule NAME and --pass NAME"),
        (("--rule", "fuse-ConvAkt"), "no rule or pass is called 'fuse-ConvAkt'; did you mean 'fuse-ConvAct'?"),
        (("--rule", "fuse-ConvAct", "--against", "x y"), "'x y' in 'x y' is no choice"),
    ],
)
def test_errors_of_ab_are_one_line(command_line: Command, model: str, arguments: tuple[str, ...], message: str) -> None:
    found = command_line("ab", model, *arguments)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err


def test_ctrl_c_in_ab_has_status_130_and_shows_the_pairs(
    command_line: Command, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(
        base: object, other: object, seconds: float, *, advance: Callable[[Comparison], object], clock: object
    ) -> None:
        advance(Comparison(0.5, 0.4, 0.6, 9))
        raise KeyboardInterrupt

    monkeypatch.setattr(with_without, "compare_runs", stop)
    found = command_line("ab", model, "--rule", "fuse-ConvAct", "--against", "none", "--json")
    assert found.code == 130, found.err
    data = json.loads(found.out)
    assert (data["finished"], data["verdict"], data["time"]["pairs"]) == (False, "keep", 9)


def test_names_command_no_terminal(command_line: Command, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    found = parser.parse_model(MODEL)
    odd = "x\x1b]0;title\x07\x9b2J\u202e"
    found.graph.input[0].name = found.graph.node[1].input[0] = odd
    onnx.save(found, path)
    for arguments in (["inspect"], ["inspect", "--kernels"], ["run", "--random"], ["run"]):
        done = command_line(arguments[0], str(path), *arguments[1:])
        text = done.out + done.err
        assert not set("\x1b\x07\x9b\u202e") & set(text), text
    assert json.loads(command_line("inspect", str(path), "--json").out)["inputs"][0]["name"] == odd


# ---- bisect


def test_bisect_when_nothing_is_wrong(command_line: Command, model: str) -> None:
    found = command_line("bisect", model)
    assert (found.code, found.err) == (0, "")
    assert "nothing is wrong on cpu, compared with reference (" in found.out
    data = json.loads(command_line("bisect", model, "--reference", "cpu:reference", "--json").out)
    assert (data["ending"], data["runs"], data["pass"]) == ("right", 1, None)


def test_bisect_names_and_writes(
    command_line: Command, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tower.onnx"
    path.write_bytes(export_model(tower(6)).SerializeToString())
    registry = registry_with(pass_of("planted", relu_to_max((2,))))
    monkeypatch.setattr(bisecting, "plugin_registry", lambda: registry)
    found = command_line("bisect", str(path), "--repro", str(tmp_path / "repro"), "--json")
    assert found.code == 1, found.err
    data = json.loads(found.out)
    assert (data["pass"], data["rule"], data["node"]) == ("planted", "relu-as-max", "Max 'r2'")
    assert (tmp_path / "repro" / "replay.py").is_file()
    (tmp_path / "file").write_text("")
    unwritable = command_line("bisect", str(path), "--repro", str(tmp_path / "file"))
    assert (unwritable.code, "cannot be written" in unwritable.err) == (2, True)
    text = command_line("bisect", str(path), "--choices", "-relu-as-max")
    assert text.code == 0, text.err


def test_errors_of_bisect_are_one_line(command_line: Command, model: str) -> None:
    found = command_line("bisect", model, "--reference", "tpu")
    assert found.code == 2
    assert "tpu" in found.err
    assert "Traceback" not in found.err


# ---- tune


def test_whole_graphs_are_tuned(command_line: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_TUNE", "cached")
    found = command_line("tune", model, "--whole-graph", "--budget", "3", "--threads", "1", "--json")
    assert found.code == 0, found.err
    data = json.loads(found.out)["whole_graph"]
    assert data["finished"]
    assert {one["change"] for one in data["tried"]} >= {"-fuse-ConvAct"} or data["left"]
    table = command_line("tune", model, "--whole-graph", "--budget", "1", "--threads", "1")
    assert "choices tried in" in table.out


# ---- inspect


def test_what_a_pass_changed(command_line: Command, model: str) -> None:
    found = command_line("inspect", model, "--diff", "fuse-linear")
    assert (found.code, found.err) == (0, "")
    assert "+  %a: " in found.out
    assert "= ConvAct(" in found.out
    assert "-  %c: " in found.out
    data = json.loads(command_line("inspect", model, "--diff", "all", "--json").out)
    assert {diff["stage"] for diff in data["diffs"]} <= {"whole", "sized"}
    assert any(diff["title"].endswith("fuse-linear") for diff in data["diffs"])
    assert command_line("inspect", model, "--diff", "remove-dead").out.startswith("remove-dead changed nothing")


def test_versions_are_written(command_line: Command, model: str, tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    found = command_line("inspect", model, "--dump", str(folder))
    assert found.code == 0, found.err
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "00-sized-source.txt"
    assert names[1] == "00-whole-source.txt"
    assert any(name.endswith("-whole-fuse-linear.txt") for name in names)
    assert "these changed nothing: " in found.out
    (tmp_path / "file").write_text("")
    wrong = command_line("inspect", model, "--dump", str(tmp_path / "file"))
    assert wrong.code == 2
    assert "cannot be written" in wrong.err


def test_why_not_at_a_node(command_line: Command, model: str) -> None:
    found = command_line("inspect", model, "--why-not", "fuse-ConvAddAct", "--node", "b")
    assert found.code == 0, found.err
    assert found.out.startswith("fuse-ConvAddAct at MaxPool 'b'")
    data = json.loads(command_line("inspect", model, "--why-not", "fuse-ConvAct", "--node", "c", "--json").out)
    assert (data["rule"], data["kind"]) == ("fuse-ConvAct", "matched")


def test_choices_for_a_look(command_line: Command, model: str) -> None:
    assert "ConvAct" in command_line("inspect", model, "--ir", "after").out
    assert "ConvAct" not in command_line("inspect", model, "--ir", "after", "--choices", "-fuse-ConvAct").out
    assert "ConvAct" not in command_line("inspect", model, "--ir", "after", "--choices", "limit=0").out
    found = command_line("run", model, "--random", "--choices", "limit=0")
    assert (found.code, "choices: limit=0: asked for" in found.out) == (0, True)
    assert "choices: limit=0: asked for" in command_line("inspect", model, "--choices", "limit=0").out
    assert json.loads(command_line("inspect", model, "--json").out)["choices"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--node", "c"), "--node 'c' needs --why-not RULE, which is asked about it"),
        (("--diff", "fuse-liner"), "no pass that ran is called 'fuse-liner'; did you mean 'fuse-linear'?"),
        (("--why-not", "fuse-ConvAct", "--node", "zz"), "no node is called 'zz'; there are: 'a', 'b', 'c'"),
        (("--choices", "-x"), "no rule or pass is called 'x'"),
    ],
)
def test_errors_of_inspect_are_one_line(
    command_line: Command, model: str, arguments: tuple[str, ...], message: str
) -> None:
    found = command_line("inspect", model, *arguments)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err
