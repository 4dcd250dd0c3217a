"""Backends, folders and files that are hostile or damaged: each gets a verdict or a message, and no credit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ConfigError, ModelError
from aicore.ir import Builder, Graph
from aicore.kernels import Kernel, kernel
from aicore.numerics.difference import measure
from aicore.ops import CORE
from aicore.plugins import PluginRegistry
from aicore.runtime import Plan
from aicore.testing import (
    Case,
    Outcome,
    Reference,
    Target,
    Verdict,
    check_case,
    check_model,
    conformance_cases,
    expected_of,
    replay,
)
from aicore.testing.cases import check_choice
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable
from aicore.testing.parity import compare_cases, find_targets
from aicore.testing.repro import case_repro, write_repro
from aicore.testing.saved import load_matrix, save_matrix
from tests.testing import backends
from tests.testing.backends import DEVICE, backend, relu, relu_wrong
from tests.testing.installed import run_python

Array = np.ndarray[Any, Any]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: Callable[[], BaseException]) -> Kernel:
    @kernel(ops.Relu, device=DEVICE, variant="raising_anything")
    def relu_raising(op: ops.Relu, x: Array) -> Array:
        raise error()

    return relu_raising


def first_case() -> Case:
    return next(iter(conformance_cases(CORE, "Relu", ["float32"])))


def verdict_of(registry: PluginRegistry) -> Verdict:
    case = first_case()
    expected = expected_of(case, Reference(registry))
    assert expected is not None
    return check_case(case, Target.find(DEVICE, registry), expected)


def small() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    return b.graph([x], {"y": b.Relu(x)})


def skipped() -> BaseException:
    return pytest.skip.Exception("not today")


@pytest.mark.parametrize(
    ("error", "text"),
    [(lambda: SystemExit(0), "SystemExit: 0"), (skipped, "Skipped: not today"), (UnprintableError, "RuntimeError")],
    ids=["SystemExit", "Skipped", "unprintable"],
)
def test_whatever_a_kernel_raises_is_a_failure(error: Callable[[], BaseException], text: str) -> None:
    registry = backend([raising(error)])
    verdict = verdict_of(registry)
    assert verdict.outcome is Outcome.FAILED
    assert text in verdict.reason
    whole, fault = check_model(small(), DEVICE, {"x": np.ones((2, 3), np.float32)}, registry=registry)
    assert whole.outcome is Outcome.FAILED
    assert fault is not None
    assert (fault.kind, str(fault.node)) == ("kernel", "Relu 'relu'")


def test_a_launcher_that_ends_the_process_is_a_failure() -> None:
    def launch(plan: Plan, device: FakeDevice) -> FakeExecutable:
        raise SystemExit(0)

    verdict = verdict_of(backend([relu], launch=launch))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "plugin npu_backend could not launch: SystemExit: 0")


def test_a_launcher_that_returns_no_executable_is_a_failure() -> None:
    verdict = verdict_of(backend([relu], launch=lambda plan, device: 5))  # type: ignore[arg-type, return-value]
    assert verdict.outcome is Outcome.FAILED


def test_each_run_has_to_be_counted() -> None:
    class FirstForFree(FakeExecutable):
        """As a launcher whose first run is somebody else's work."""

        runs = 0

        def run(self, *arguments: Any) -> Any:
            self.runs += 1
            return super().run(*arguments)

        @property
        def steps_run(self) -> int:
            return super().steps_run if self.runs > 1 else 0

    verdict = verdict_of(backend([relu], launch=FirstForFree))
    assert verdict.outcome is Outcome.FAILED
    assert "the device counts 0 steps of a run for which 2 were planned" in verdict.reason


def test_a_plan_is_the_one_that_was_launched_not_what_the_executable_says() -> None:
    class Denying(backends.CountingNothing):
        """It did nothing, it says, because nothing was to be done."""

        def __init__(self, plan: Plan, device: FakeDevice) -> None:
            super().__init__(plan, device)
            self.run_plan = plan

        def run(self, *arguments: Any) -> Any:
            self.plan = self.run_plan
            results = super().run(*arguments)
            self.plan = None  # type: ignore[assignment]
            return results

    verdict = verdict_of(backend([relu], launch=Denying))
    assert verdict.outcome is Outcome.FAILED
    assert "0 steps of a run for which 2 were planned" in verdict.reason


def test_a_model_of_which_no_step_was_counted_gets_no_credit() -> None:
    registry = backend([relu], launch=backends.CountingNothing)
    verdict, _ = check_model(small(), DEVICE, {"x": np.ones((2, 3), np.float32)}, registry=registry)
    assert verdict.outcome is Outcome.FAILED
    assert "the device counts 0 steps of a run for which 1 were planned" in verdict.reason


def test_a_wider_result_is_wrong_though_its_numbers_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    class Widening(backends.Npu):
        def download(self, array: Any) -> Array:
            result = super().download(array)
            return result.astype(np.float64) if result.dtype == np.float32 else result

    monkeypatch.setattr(backends, "Npu", Widening)
    registry = backend([relu])
    verdict = verdict_of(registry)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "result y0 is of dtype float64, should be float32")
    whole, _ = check_model(small(), DEVICE, {"x": np.ones((2, 3), np.float32)}, registry=registry)
    assert whole.reason == "result y is of dtype float64, should be float32"


def test_nan_is_wrong_where_any_number_would_do() -> None:
    assert measure(np.array([np.nan]), np.array([1.0]), np.inf).wrong == 1
    assert measure(np.array([2.0]), np.array([1.0]), np.inf).is_right


def repro_of(registry: PluginRegistry, folder: Path) -> Path:
    case = first_case()
    target, expected = Target.find(DEVICE, registry), expected_of(case, Reference(registry))
    assert expected is not None
    verdict = check_case(case, target, expected)
    assert verdict.outcome is Outcome.FAILED
    return write_repro(folder, case_repro(case, target, expected, verdict))


def test_a_repro_shows_steps_that_were_not_counted(tmp_path: Path) -> None:
    idle = backend([relu], launch=backends.CountingNothing)
    folder = repro_of(idle, tmp_path / "repro")
    assert replay(folder, idle).reproduced
    assert not replay(folder, backend([relu])).reproduced


def test_a_repro_shows_a_launcher_that_refuses_what_its_kernels_take(tmp_path: Path) -> None:
    refusing = backend([relu], launch=backends.refusing)
    folder = repro_of(refusing, tmp_path / "repro")
    assert replay(folder, refusing).reproduced


_FEED = "feeds-0.npy"
DAMAGES: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "no target": lambda f, about: about.pop("target"),
    "no layout": lambda f, about: about.pop("layout"),
    "unknown layout": lambda f, about: about.update(layout="spiral"),
    "unknown kind": lambda f, about: about.update(kind="rumour"),
    "kind is a list": lambda f, about: about.update(kind=[]),
    "arrays are a list": lambda f, about: about.update(arrays=[]),
    "no constants": lambda f, about: about["arrays"].pop("constants"),
    "nothing is fed": lambda f, about: about["arrays"].update(feeds=[]),
    "nothing is expected": lambda f, about: about["arrays"].update(want=[]),
    "no bounds": lambda f, about: about["arrays"].update(allowed=[]),
    "unknown element type": lambda f, about: about["arrays"]["feeds"][0].__setitem__(2, "float33"),
    "empty array": lambda f, about: (f / _FEED).write_bytes(b""),
    "truncated array": lambda f, about: (f / _FEED).write_bytes((f / _FEED).read_bytes()[:-9]),
    "an archive": lambda f, about: (f / _FEED).write_bytes(b"PK\x03\x04" + b"x" * 60),
    "another input": lambda f, about: np.save(f / _FEED, np.ones(3, np.float32)),
    "objects": lambda f, about: np.save(f / _FEED, np.array([{}], object), allow_pickle=True),
    "other bounds": lambda f, about: np.save(f / "allowed-0.npy", np.ones(7)),
    "no graph": lambda f, about: (f / "graph.txt").write_text("nothing"),
    "format": lambda f, about: about.update(format=99),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_repro_blames_itself_and_not_the_target(damage: Any, tmp_path: Path) -> None:
    registry = backend([relu_wrong])
    folder = repro_of(registry, tmp_path / "repro")
    about = json.loads((folder / "repro.json").read_text())
    damage(folder, about)
    (folder / "repro.json").write_text(json.dumps(about))
    with pytest.raises(ModelError, match="repro"):
        replay(folder, registry)


def test_a_repro_with_nesting_beyond_measure_is_refused(tmp_path: Path) -> None:
    folder = repro_of(backend([relu_wrong]), tmp_path / "repro")
    (folder / "repro.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match="RecursionError"):
        replay(folder, backend([relu_wrong]))


def test_a_repro_of_a_pass_that_is_not_here_cannot_be_replayed(tmp_path: Path) -> None:
    folder = repro_of(backend([relu_wrong]), tmp_path / "repro")
    about = json.loads((folder / "repro.json").read_text())
    (folder / "repro.json").write_text(json.dumps({**about, "kind": "pass", "pass": "fuse-everything"}))
    with pytest.raises(ConfigError, match="no pass is called 'fuse-everything'"):
        replay(folder, backend([relu_wrong]))


def saved_matrix(folder: Path) -> Path:
    registry = backend([relu])
    columns, targets = find_targets([DEVICE, "cpu"], registry)
    cases = list(conformance_cases(CORE, "Relu"))[:3]
    file = folder / "there.npz"
    save_matrix(compare_cases(cases, columns, targets, Reference(registry), "all"), file)
    return file


def _verdict(about: dict[str, Any]) -> dict[str, Any]:
    verdict: dict[str, Any] = about["entries"][0]["verdicts"][DEVICE]
    return verdict


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an unknown outcome": lambda about: _verdict(about).update(outcome="perfect"),
    "steps in words": lambda about: _verdict(about).update(steps="many"),
    "no steps": lambda about: _verdict(about).update(steps=None),
    "a reason in numbers": lambda about: _verdict(about).update(reason=5),
    "kernels in numbers": lambda about: _verdict(about).update(kernels=[5]),
    "an error in words": lambda about: _verdict(about).update(difference={"max_relative": "small"}),
    "an id that is a list": lambda about: about["entries"][0].update(id=[]),
    "a verdict on no column": lambda about: about["entries"][0]["verdicts"].update(tpu=_verdict(about)),
    "no columns": lambda about: about.update(columns=[]),
    "two columns of one name": lambda about: about.update(columns=[{"name": "a"}, {"name": "a"}]),
    "a name in numbers": lambda about: about["columns"][0].update(name=5),
    "remarks in numbers": lambda about: about.update(remarks=[5]),
    "a title in numbers": lambda about: about.update(title=5),
    "an unknown field": lambda about: about["entries"][0].update(colour="red"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_matrix_that_was_tampered_with_is_refused(change: Any, tmp_path: Path) -> None:
    file = saved_matrix(tmp_path)
    with np.load(file) as archive:
        arrays = dict(archive)
    about = json.loads(arrays["about"].tobytes())
    change(about)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with file.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    with pytest.raises(ModelError, match=r"there\.npz is no saved matrix that can be read"):
        load_matrix(file)


def test_a_damaged_matrix_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    whole = saved_matrix(tmp_path).read_bytes()
    file = tmp_path / "damaged.npz"
    refused = 0
    for place in range(30, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            load_matrix(file)
        except ModelError:
            refused += 1
    assert refused > 10  # other exceptions end the test; some bytes, such as times, mean nothing
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="EOFError"):
        load_matrix(file)


@pytest.mark.parametrize(
    ("pattern", "dtypes", "text"),
    [
        ("Relu,Nope", None, "no op matches 'Nope'"),
        ("", None, "no op matches ''"),
        ("Relu", ["float32", "flaot16"], "no element type is called 'flaot16'"),
    ],
)
def test_a_choice_of_nothing_is_an_error(pattern: str, dtypes: list[str] | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_choice(CORE, pattern, dtypes)


def test_properties_of_other_tests_do_not_disturb_the_summary(tmp_path: Path) -> None:
    file = tmp_path / "test_theirs.py"
    file.write_text('def test_theirs(record_property):\n    record_property("aicore", "0.1")\n')
    done = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))
    assert (done.returncode, "INTERNALERROR" in done.stdout + done.stderr) == (0, False)
    assert "conformance" not in done.stdout


def test_a_misspelt_choice_is_a_usage_error(tmp_path: Path) -> None:
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--aicore-target", "cpu", "--aicore-ops", "Relu"]
    done = run_python(tmp_path, *command, "--aicore-dtypes", "flaot16")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no element type is called 'flaot16'" in done.stderr
