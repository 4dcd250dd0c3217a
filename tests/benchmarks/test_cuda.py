"""The CUDA benchmarks where no GPU is needed: their cases, what they make of samples, and of workers that fail."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import TensorType
from benchmarks import cuda_kernels, cuda_vs_torch
from benchmarks.gpu import turns
from benchmarks.gpu.aicore_side import device_counts, relative_error
from benchmarks.gpu.cases import LARGEST_BYTES, MEMORY_BOUND, chain, moved_bytes, random_feeds, resnet50_layers
from benchmarks.gpu.machine import circumstances, driver_version, installed

REQUEST: dict[str, Any] = {"network": "mlp", "batches": (1, 32), "modes": ["reduce-overhead"]}


def test_sides_take_turns_and_each_starts_a_round() -> None:
    made: list[tuple[str, int]] = []

    def side(name: str, seconds: float) -> turns.Timer:
        def timer(calls: int) -> float:
            made.append((name, calls))
            return seconds

        return timer

    samples = turns.take_turns({"a": side("a", 0.01), "b": side("b", 1.0)}, 3)
    assert samples == {"a": [0.01] * 3, "b": [1.0] * 3}
    assert made[4:] == [("a", 3), ("b", 3), ("b", 3), ("a", 3), ("a", 3), ("b", 3)]
    assert turns.take_turns({}, 2) == {}


def test_a_sample_is_long_enough_to_be_timed() -> None:
    assert turns.calls_of_sample(1.0) == turns.FEWEST_CALLS
    assert turns.calls_of_sample(1e-3) == 30
    assert turns.calls_of_sample(0.0) == turns.MOST_CALLS


def test_ratio_is_the_speed_of_a_side_over_that_of_others() -> None:
    found = turns.ratios_to("aicore", {"aicore": [1.0, 2.0, 1.0], "graph": [2.0, 2.0, 3.0]})
    assert found == {"graph": {"median": 2.0, "low": 1.0, "high": 3.0}}


@pytest.mark.parametrize("case", MEMORY_BOUND, ids=lambda case: case.name)
def test_memory_bound_cases_move_about_256_mb_or_more(case: Any) -> None:
    graph = case.graph()
    largest = max(math.prod(v.type.static_shape) * 4 for v in (*graph.inputs, graph.outputs[0][1]))
    assert 128 << 20 <= largest <= LARGEST_BYTES
    operands = sum(math.prod(shape) for shape in case.shapes)
    result = math.prod(graph.outputs[0][1].type.static_shape)
    assert moved_bytes(graph) == 4 * (operands + result)


def test_convolutions_of_resnet50() -> None:
    layers = resnet50_layers()
    assert sum(layers.values()) == 53
    # 4.089 G multiplications are those of torchvision's resnet50; 2.048 M of them are of its dense layer.
    assert sum(layer.multiplications * n for layer, n in layers.items()) == pytest.approx(4.087e9, rel=1e-3)
    # All parameters, 25,557,032, less the dense layer's and two a channel of the batch norms.
    weights = sum(layer.weights().size * count for layer, count in layers.items())
    norms = sum(2 * layer.filters * count for layer, count in layers.items())
    assert weights + norms + 2048 * 1000 + 1000 == 25_557_032


def test_a_convolution_layer_runs_on_images_with_channels_last() -> None:
    layer = next(one for one in resnet50_layers() if (one.size, one.stride, one.channels) == (3, 2, 256))
    graph = layer.graph(2)
    assert graph.outputs[0][1].type == TensorType("float32", (2, 14, 14, 256))
    assert str(layer) == "3x3/2 256->256 on 28x28"
    feeds = {"x": np.ones((2, 28, 28, 256), np.float32)}
    y = aicore.compile(graph, target="cpu", threads=1).run(feeds)["y"]
    inner = layer.weights().astype(np.float64).sum(axis=(1, 2, 3))  # the window lies inside of an image of ones
    np.testing.assert_allclose(y[1, 5, 7], inner, rtol=1e-4, atol=1e-4)


def test_no_nodes_of_the_chain_are_fused() -> None:
    program = aicore.compile(chain(100), target="cpu", threads=1)
    program.specialise({"x": (8, 64)})
    assert sum(len(plan.steps) for plan in program.plan) == 100


def test_feeds_are_seeded() -> None:
    graph = chain(1)
    feeds = random_feeds(graph)
    assert (feeds["x"].dtype, feeds["x"].shape) == (np.float32, (8, 64))
    np.testing.assert_array_equal(feeds["x"], random_feeds(graph)["x"])


def test_share_of_the_copy_rate() -> None:
    found = cuda_kernels.shares({"aicore": [2.0, 2.0, 4.0], "copy": [1.0, 1.0, 1.0]}, moved=300, copied=200)
    assert found["share"]["median"] == 0.75
    assert found["rates"] == {"aicore": 150.0, "copy": 200.0}


def test_a_case_that_fails_is_a_row_that_says_why() -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("no kernel")

    row = cuda_kernels._row("Add", fail, count=2)
    assert row == {"case": "Add", "count": 2, "failure": "RuntimeError: no kernel"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"share": {"median": 0.8}, "rates": {"aicore": 3e12}},
            "aicore 2.0 us; 3.00 TB/s, 80.0% of the copy rate (below 85%)",
        ),
        (
            {"share": {"median": 0.9}, "rates": {"aicore": 3e12}},
            "aicore 2.0 us; 3.00 TB/s, 90.0% of the copy rate",
        ),
        (
            {"ratio": {"median": 0.9}, "flops": {"aicore": 4e13}, "best": "cuBLAS", "relative_error": 1e-7},
            "aicore 2.0 us; 40.0 TFLOP/s, 0.90x cuBLAS (below 0.92), error 1e-07",
        ),
        ({"us_per_kernel": 1.25}, "aicore 2.0 us; us per kernel 1.25"),
    ],
)
def test_figures_of_a_row_in_words(row: dict[str, Any], told: str) -> None:
    assert cuda_kernels.figures_text({"case": "GEMM 4096, own kernels", "seconds": {"aicore": 2e-6}, **row}) == told


def test_the_bar_of_products_is_one_of_own_kernels() -> None:
    figures = {"ratio": {"median": 0.9}, "flops": {"aicore": 4e13}, "best": "cuBLAS", "relative_error": 1e-7}
    for case in ("GEMM 4096", "GEMM 1024, own kernels"):
        assert "below" not in cuda_kernels.figures_text({"case": case, "seconds": {"aicore": 2e-6}, **figures})


def test_tuning_in_words() -> None:
    done = {"seconds": 7.25, "problems": 20, "timed": 300, "changed": 4, "refused": 0}
    row = {"tuning": done, "untuned_over_tuned": {"median": 1.25, "low": 1.2, "high": 1.3}}
    assert cuda_vs_torch.tuning_text(row) == (
        "untuned takes 1.250 (1.200 .. 1.300) times as long as tuned (above 1.2); "
        "tuned in 7.2 s: 20 problems, 300 candidates timed, 4 choices changed, 0 refused"
    )
    row["untuned_over_tuned"]["median"] = 1.15
    assert "above" not in cuda_vs_torch.tuning_text(row)


def test_relative_error_is_that_of_the_norm() -> None:
    assert relative_error(np.array([3.0, 4.5], np.float32), np.array([3.0, 4.0])) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="shape"):
        relative_error(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="not finite"):
        relative_error(np.array([np.nan]), np.ones(1))


def test_nodes_are_counted_by_kind_of_device() -> None:
    assert device_counts(["cuda:0", "cpu", "cuda:1"]) == {"cuda": 2, "cpu": 1}


def test_driver_is_what_the_kernel_module_tells(tmp_path: Path) -> None:
    told = tmp_path / "version"
    told.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\nGCC version: 12.2.0\n")
    assert driver_version(told) == "580.95.05"
    assert driver_version(tmp_path / "absent") == "unknown"
    assert installed("no-such-package") is None
    assert set(circumstances()["versions"]) >= {"python", "aicore", "numpy"}


def _row(network: str, batch: int, ratio: float | None, **more: Any) -> dict[str, Any]:
    found = None if ratio is None else {"median": ratio}
    return {"network": network, "batch": batch, "ratio": found, "failures": {}, "relative_error": {}, **more}


def test_summary_by_batch_tells_bars_that_were_missed() -> None:
    rows = [_row("mlp", 1, 1.0), _row("resnet18", 1, 2.9), _row("lstm", 1, None), _row("mlp", 32, 1.2)]
    found = cuda_vs_torch.summary(rows)
    first = found["batches"]["1"]
    assert first["geometric_mean"] == pytest.approx(2.9**0.5)
    assert (first["worst"], first["worst_network"], first["ran"], first["of"]) == (1.0, "mlp", 2, 3)
    assert first["missed"] == ["geometric mean 1.70 below 2.0", "resnet18 2.90 below 3.0"]
    assert found["batches"]["32"]["missed"] == []
    assert found["text"][1].endswith("worst 1.20 (mlp); all bars held")
    assert cuda_vs_torch.summary([_row("lstm", 1, None)])["text"] == ["batch 1: no ratio of 1 networks"]


def test_the_last_row_of_a_batch_counts() -> None:
    lines = [
        {"gpu": "a GPU"},
        {"network": "mlp", "batch": 1, "seconds": {"graph": 1.0}, "failures": {}},
        {"network": "mlp", "batch": 1, "seconds": {"graph": 1.0, "reduce-overhead": 2.0}, "failures": {}},
        {"network": "mlp", "batch": 32, "seconds": {"graph": 3.0}, "failures": {}},
    ]
    gpu, (one, many) = cuda_vs_torch.rows_of(REQUEST, map(json.dumps, lines), "stopped after 9 s")
    assert gpu == "a GPU"
    assert one["seconds"]["reduce-overhead"] == 2.0
    assert one["failures"] == {}
    assert many["failures"] == {"reduce-overhead": "stopped after 9 s"}
    _, rows = cuda_vs_torch.rows_of(REQUEST, [], "")
    assert [row["error"] for row in rows] == ["it told nothing"] * 2


def test_faults_are_failures_of_aicore_and_wrong_numbers() -> None:
    rows = [
        _row("slow", 1, 0.1, relative_error={"aicore": 1e-6, "graph": 1.0}),
        _row("wrong", 1, 9.0, relative_error={"aicore": 1e-3}),
        _row("refused", 1, None, failures={"aicore": "UnsupportedError: no"}),
        _row("theirs", 1, 1.0, failures={"max-autotune": "stopped"}),
        _row("tuned", 1, 1.0, relative_error={"aicore, tuned": 1e-3}, failures={"aicore, tuned": "TuningError: no"}),
        {"network": "gone", "batch": 32, "error": "stopped after 9 s"},
    ]
    assert cuda_vs_torch.faults(rows) == [
        "wrong b1: outputs are 1.0e-03 of their norm away from float64",
        "refused b1: UnsupportedError: no",
        "tuned b1, tuned: TuningError: no",
        "tuned b1, tuned: outputs are 1.0e-03 of their norm away from float64",
        "gone b32: stopped after 9 s",
    ]


_WORKER = """
import json, sys, time
request = json.loads(sys.argv[1])
with open(sys.argv[2], "a") as lines:
    row = {"network": request["network"], "batch": 1, "seconds": {"graph": 1.0}, "failures": {}}
    lines.write(json.dumps(row) + chr(10))
print("about to fail")
"""


@pytest.mark.parametrize(
    ("ending", "limit", "reason"),
    [
        ("sys.exit(3)", 60.0, "its process ended with 3: about to fail"),
        ("sys.stdout.flush(); time.sleep(60)", 3.0, "stopped after 3 s: about to fail"),
    ],
)
def test_rows_outlive_a_worker_that_fails_or_hangs(
    ending: str, limit: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_worker.py").write_text(_WORKER + ending)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _, (one, many) = cuda_vs_torch.measure(REQUEST, limit, "failing_worker")
    assert one["seconds"] == {"graph": 1.0}
    assert one["failures"] == {"reduce-overhead": reason}
    assert many["error"] == reason


@pytest.mark.parametrize("options", [["--batches", "1,x"], ["--rounds", "0"], ["--networks", "vgg"]])
def test_options_are_checked_before_anything_runs(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cuda_vs_torch.main(options)
    assert "error: argument" in capsys.readouterr().err


def test_without_a_gpu_every_row_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_vs_torch, "measure", lambda *_: ("", [{"network": "mlp", "batch": 1, "error": "no GPU"}]))
    assert cuda_vs_torch.main(["--networks", "mlp"]) == 1
    assert "mlp b1: no GPU" in capsys.readouterr().out


# From the papers' reference code; LSTM: 4 * 256 * (128 + 256 + 2); encoder: 4 * (4 * 256^2 + 2 * 256 * 1024 + 3,328).
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("mobilenet_v2", 3_504_872),
        ("lstm", 395_264),
        ("encoder", 3_159_040),
    ],
)
def test_networks_have_as_many_parameters_as_published(name: str, parameters: int) -> None:
    pytest.importorskip("torch", reason="only the comparison with PyTorch needs it")
    from benchmarks.gpu.networks import NETWORKS

    assert sum(p.numel() for p in NETWORKS[name].make().parameters()) == parameters


def test_an_exported_network_computes_what_float64_does(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="only the comparison with PyTorch needs it")
    from benchmarks.gpu.networks import build, expected, export, inputs

    network, x = build("small_cnn"), inputs("small_cnn", 2)
    wanted = expected(network, x)
    assert export(network, x, tmp_path / "network.onnx") in {"traced", "dynamo"}
    program = aicore.compile(tmp_path / "network.onnx", target="cpu", threads=1)
    assert relative_error(program.run({"x": x.numpy()})["y"], wanted) < 1e-6
    assert wanted.std() > 0.1
