"""The comparison with onnxruntime: what it makes of samples, how it exports layers, what it calls a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import aicore
from aicore.errors import AicoreError
from aicore.ir import Builder, Graph, TensorType
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct
from aicore.ops.layout import ChannelsLast
from aicore.tuning import Measure
from benchmarks import cpu_vs_onnxruntime
from benchmarks.versus import pairs
from benchmarks.versus.layers import Layer, export_layer, group_steps, op_text, profile_steps, random_operand
from benchmarks.versus.networks import NETWORKS, write_network
from benchmarks.versus.sides import Settings, compare, how_to_measure, open_aicore, read_feeds
from benchmarks.versus.statistics import estimate, geometric_mean, paired_ratios
from benchmarks.versus.worker import AICORE, THEIRS, THEIRS_QUIET, Request, measure, speeds


def test_geometric_mean_is_that_of_reciprocals_turned_over() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 4.0, 2.0]) == pytest.approx(2.0)
    ratios = [0.3, 0.9, 1.7]
    assert geometric_mean(1 / r for r in ratios) == pytest.approx(1 / geometric_mean(ratios))


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [2.0, -1.0]])
def test_geometric_mean_wants_positive_ratios(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="positive ratios"):
        geometric_mean(ratios)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # P(at most k of n fair coins show heads), twice, stays below 5%: k = 0 for 7 (1.6%; k = 1 has 12.5%),
    # 1 for 10 (2.1%; 2 has 10.9%), 5 for 20 (4.1%; 6 has 11.5%), none for 3 (25%).
    [(1, 1, 1), (3, 1, 3), (7, 1, 7), (10, 2, 9), (20, 6, 15)],
)
def test_interval_of_the_median_by_order_statistics(count: int, low: int, high: int) -> None:
    samples = [float(x) for x in np.random.default_rng(0).permutation(np.arange(1, count + 1))]
    found = estimate(samples)
    assert (found.low, found.high) == (low, high)
    assert found.median == (count + 1) / 2


def test_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    found = [estimate(rng.exponential(size=12)) for _ in range(2000)]
    held = sum(one.low <= np.log(2) <= one.high for one in found) / len(found)
    assert 0.95 <= held <= 0.98  # ranks 3 and 10 of 12 hold it with 96.1%


def test_no_samples_have_no_median() -> None:
    with pytest.raises(ValueError, match="no samples"):
        estimate([])


def test_rounds_pair_up() -> None:
    assert paired_ratios([1.0, 6.0], [2.0, 3.0]) == [0.5, 2.0]
    with pytest.raises(ValueError, match="2 and 1 samples"):
        paired_ratios([1.0, 2.0], [1.0])


def test_ratio_is_to_the_better_form_of_onnxruntime() -> None:
    found = speeds({AICORE: [2.0, 4.0, 2.0], THEIRS: [1.0, 1.0, 1.0], THEIRS_QUIET: [2.0, 2.0, 3.0]})
    assert found["better"] == THEIRS
    assert found["ratio"]["median"] == found["ratio_spinning"]["median"] == 0.5
    assert found["ratio_without_spinning"] == {"median": 1.0, "low": 0.5, "high": 1.5}
    assert found["rounds"] == 3


def test_sides_take_turns_and_each_starts_a_round() -> None:
    calls: list[str] = []
    reported: list[tuple[int, int]] = []

    def side(name: str) -> Any:
        return lambda: calls.append(name)

    samples = pairs.interleave({"a": side("a"), "b": side("b")}, 3, lambda done, total: reported.append((done, total)))
    rounds = len(samples["a"])
    assert rounds == len(samples["b"]) == pairs.MOST_ROUNDS  # nothing is faster than appending to a list
    assert reported[-1] == (rounds, rounds)
    burst = pairs.MOST_RUNS + 1  # one to warm up
    order = calls[4::burst]  # after two calls of each, which tell how long one takes
    assert order[:6] == ["a", "b", "b", "a", "a", "b"]
    assert min(samples["a"]) > 0


def test_slow_networks_get_the_rounds_asked_for_and_fast_ones_more() -> None:
    assert pairs.rounds_for(7, seconds=10.0) == 7
    assert pairs.rounds_for(7, seconds=0.1) == 30
    assert pairs.rounds_for(7, seconds=1e-6) == pairs.MOST_ROUNDS
    assert pairs.rounds_for(50, seconds=1e-6) == 50
    assert pairs.runs_of_sample(10.0) == pairs.FEWEST_RUNS
    assert pairs.runs_of_sample(0.02) == 5
    assert pairs.runs_of_sample(1e-6) == pairs.MOST_RUNS


def test_settle_returns_once_nothing_runs() -> None:
    assert pairs.settle() > 0


def test_compare_tells_norm_element_and_spread() -> None:
    expected = [np.array([3.0, 4.0], np.float32), np.array([1.0, 1.0], np.float32)]
    found = compare([np.array([3.0, 4.5], np.float32), expected[1]], expected)
    assert found.relative == pytest.approx(0.1)
    assert found.largest == pytest.approx(0.125)
    assert found.spread == 0.0


def test_compare_refuses_other_types_and_what_is_not_finite() -> None:
    one = np.ones(2, np.float32)
    with pytest.raises(ValueError, match="differ in type"):
        compare([one], [np.ones(3, np.float32)])
    with pytest.raises(ValueError, match="not finite"):
        compare([np.array([1.0, np.nan], np.float32)], [one])


def test_settings_reach_aicore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    graph, _ = _fused(channels_last=False)
    path = tmp_path / "layer.onnx"
    path.write_bytes(export_layer(graph.nodes[0])[0].SerializeToString())
    for tune in ("off", "cached", "measure"):
        program = open_aicore(path, Settings(3, tune))
        program.run({"x0": np.ones((1, 2, 5, 6), np.float32)})
        assert program.plan[0].threads == 3


def test_tuning_has_its_budget_and_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    measure = how_to_measure(5.0, lambda done, total: told.append((done, total)))
    assert measure.budget == 5.0
    assert measure.started is not None
    assert measure.finished is not None
    measure.started([None, None])  # two problems
    measure.finished(None)
    measure.finished(None)
    assert told == [(1, 2), (2, 2)]
    assert how_to_measure(None, None).budget == Measure().budget


def _fused(channels_last: bool) -> tuple[Graph, np.ndarray[Any, Any]]:
    op = Builder()
    shape = (1, 5, 6, 2) if channels_last else (1, 2, 5, 6)
    x = op.input("x", "float32", shape)
    w = np.arange(3 * 2 * 3 * 3, dtype=np.float32).reshape(3, 2, 3, 3) - 20
    inner = ConvAct(Conv(pads=(1, 1, 1, 1), strides=(2, 2)), Relu())
    y = op.apply(ChannelsLast(inner) if channels_last else inner, x, op.constant(w, "w"))
    return op.graph([x], {"y": y}), w


@pytest.mark.parametrize("channels_last", [False, True])
def test_layer_is_exported_as_its_parts_on_the_layout_of_onnx(channels_last: bool) -> None:
    graph, w = _fused(channels_last)
    model, types = export_layer(graph.nodes[0])
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu"]
    assert types == {"x0": TensorType("float32", (1, 2, 5, 6))}
    x = np.ones((1, 2, 5, 6), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x0": x})
    assert y.shape == (1, 3, 3, 3)
    assert y[0, 2, 1, 1] == w[2].sum()  # the window lies inside the image; the weights of map 2 are positive
    assert y[0, 0, 1, 1] == 0.0  # those of map 0 add up to less than nothing


def test_an_operand_used_twice_is_one_input() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    node = op.graph([x], {"y": op.Add(x, x)}).nodes[0]
    _, types = export_layer(node)
    assert list(types.values()) == [TensorType("float32", (2, 3))]


def test_layer_of_open_size_is_not_exported() -> None:
    op = Builder()
    x = op.input("x", "float32", ("n", 3))
    node = op.graph([x], {"y": op.Relu(x)}).nodes[0]
    with pytest.raises(AicoreError, match="not known in numbers"):
        export_layer(node)


def test_alike_steps_are_one_layer_heaviest_first() -> None:
    op = Builder()
    x = op.input("x", "float32", (4, 8))
    w = op.constant(np.eye(8, dtype=np.float32))
    y = op.MatMul(op.MatMul(op.Softmax(x), w), w)
    program = aicore.compile(op.graph([x], {"y": y}), target="cpu", optimize=False)
    steps = profile_steps(program, {"x": np.ones((4, 8), np.float32)})
    assert [len(seconds) for _, seconds in steps] == [7, 7, 7]
    timed = [(step, [1.0 + i, 2.0 + i]) for i, (step, _) in enumerate(steps)]  # 1 s, then 2 s and 3 s
    (first, node), (second, _) = group_steps(timed)
    assert (first.count, first.seconds, node.op) == (2, 2.5, steps[1][0].node.op)
    assert (second.count, second.seconds) == (1, 1.0)
    assert first.flops == 2 * 4 * 8 * 8


def test_rate_is_of_what_bounds_the_layer() -> None:
    compute = Layer("Conv()", "", "", 2, seconds=0.5, flops=10**9, moved=10**6, theirs=0.25)
    assert compute.rate(0.5) == "2.0 GFLOP/s"
    assert (compute.ratio, compute.lost_seconds) == (0.5, 0.5)
    memory = Layer("Add()", "", "", 1, seconds=0.5, flops=10**9, moved=10**9, reason="not there")
    assert memory.rate(0.5) == "2.0 GB/s"
    assert (memory.ratio, memory.lost_seconds) == (None, 0.0)
    assert memory.as_json()["rates"] == {"ours": "2.0 GB/s", "theirs": None}


def test_op_text_shows_what_matters() -> None:
    plain = ConvAct(Conv(dilations=(1, 1), pads=(0, 0, 0, 0), strides=(2, 2), group=4), Relu())
    assert op_text(plain) == "ConvAct(Conv(group=4, strides=(2,2)), Relu())"
    assert op_text(ChannelsLast(plain)) == f"NHWC {op_text(plain)}"


def test_random_operands_are_valid_indices_and_seeded() -> None:
    assert not random_operand(TensorType("int64", (2, 2)), 0).any()
    assert random_operand(TensorType("bool", (2,)), 0).all()
    floats = random_operand(TensorType("float32", (50,)), 3)
    assert floats.dtype == np.float32
    assert floats.std() > 0.5
    np.testing.assert_array_equal(floats, random_operand(TensorType("float32", (50,)), 3))


def test_networks_are_written_for_other_processes(tmp_path: Path) -> None:
    model, feeds = write_network("light_squeezenet", tmp_path)
    loaded = onnx.load(model)
    assert loaded.graph.node[-1].op_type != "Softmax"
    assert [i.name for i in loaded.graph.input] == list(read_feeds(feeds))
    assert len(NETWORKS) == 12


def test_requests_survive_the_way_to_the_worker() -> None:
    request = Request("magika", Settings(4, "measure", 2.5), rounds=9, sanity=True)
    assert Request.from_json(request.as_json()) == request


def test_messages_of_a_worker() -> None:
    told: list[tuple[str, int, int]] = []

    def say(*stage: Any) -> None:
        told.append(stage)

    lines = [json.dumps({"stage": "rounds", "done": 1, "total": 7}), json.dumps({"result": {"network": "n"}})]
    assert cpu_vs_onnxruntime.read_messages(lines, say) == {"network": "n"}
    assert told == [("rounds", 1, 7)]
    assert cpu_vs_onnxruntime.read_messages(lines[:1], say) is None


def _network(name: str, ratio: float, difference: float = 1e-7, **more: Any) -> dict[str, Any]:
    form = {"median": ratio}
    forms = dict.fromkeys(("ratio", "ratio_spinning", "ratio_without_spinning"), form)
    return {"network": name, **forms, "difference": {"relative": difference}, **more}


def test_summary_leaves_out_what_failed() -> None:
    networks = [_network("a", 0.5), {"network": "b", "error": "it broke"}, _network("c", 2.0)]
    found = cpu_vs_onnxruntime.summary(networks)["summary"]
    assert found["geometric_mean"] == pytest.approx(1.0)
    assert (found["worst"], found["worst_network"]) == (0.5, "a")
    assert cpu_vs_onnxruntime.summary(networks[1:2]) == {}


def test_faults_are_errors_and_wrong_numbers_but_not_slowness() -> None:
    networks = [
        _network("slow", 0.01),
        {"network": "broken", "error": "it broke"},
        _network("wrong", 1.0, difference=1e-3),
        _network("no quicker", 1.0, evaluator={"ratio": 49.0}),
        _network("sane", 1.0, evaluator={"ratio": 51.0}),
    ]
    assert cpu_vs_onnxruntime.faults(networks) == [
        "broken: it broke",
        "wrong: outputs differ by 1.0e-03 of their norm",
        "no quicker: only 49 times as fast as the onnx evaluator",
    ]


def test_ratios_of_start_up() -> None:
    ours = {"imports_s": 0.0, "load_s": 3.0, "first_run_s": 1.0, "warm_s": 1.0, "peak_bytes": 30}
    theirs = {"imports_s": 4.0, "load_s": 1.0, "first_run_s": 1.0, "warm_s": 2.0, "peak_bytes": 20}
    found = cpu_vs_onnxruntime.with_ratios({"start_up": {"aicore": ours, "onnxruntime": theirs}})["start_up"]["ratios"]
    assert found == {"load_and_first_run": 2.0, "with_import": pytest.approx(4 / 6), "warm": 0.5, "peak": 1.5}
    assert cpu_vs_onnxruntime.with_ratios({"network": "n"}) == {"network": "n"}


def test_cpu_model_is_what_linux_says(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A Processor: 3 GHz\nmodel name\t: another\n")
    assert cpu_vs_onnxruntime.cpu_model(info) == "A Processor: 3 GHz"
    assert cpu_vs_onnxruntime.cpu_model(tmp_path / "absent")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rounds", "0"], "no positive number"),
        (["--budget", "5"], "--budget is for --tune measure"),
        (["--networks", "lenet"], "invalid choice"),
        (["--sanity", "light_vgg19", "--networks", "magika"], "--sanity wants light_vgg19"),
    ],
)
def test_options_are_checked_before_anything_runs(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cpu_vs_onnxruntime.main(options)
    assert message in capsys.readouterr().err


def test_weights_stay_constants_so_that_onnxruntime_may_prepack_them() -> None:
    graph, w = _fused(channels_last=False)
    model, _ = export_layer(graph.nodes[0])
    (stored,) = (onnx.numpy_helper.to_array(i) for i in model.graph.initializer)
    np.testing.assert_array_equal(stored, w)


@pytest.mark.slow
def test_a_network_is_measured_whole() -> None:
    stages: list[str] = []
    request = Request("magika", Settings(1), rounds=1, layers=2, start_ups=1)
    found = json.loads(json.dumps(measure(request, lambda stage, done, total: stages.append(stage))))
    assert list(dict.fromkeys(stages)) == ["write", "compile", "rounds", "layers", "start-up"]
    assert found["difference"]["relative"] < cpu_vs_onnxruntime.DIFFERENCE_BOUND
    assert [layer["reason"] for layer in found["layers"]] == ["", ""]
    assert found["layers"][0]["ratio"] <= found["layers"][1]["ratio"]
    for side in ("aicore", "onnxruntime"):
        assert found["start_up"][side]["first_run_s"] > 0
        assert 1e5 < found["start_up"][side]["peak_bytes"] < 1e9
    assert cpu_vs_onnxruntime.faults([found]) == []
