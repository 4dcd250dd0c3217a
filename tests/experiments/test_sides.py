"""One way to compile a model: what is measured of it, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from aicore.errors import AicoreError, ConfigError
from aicore.experiments.sides import Bench, Side
from aicore.ir import Builder
from aicore.passes import Choices
from aicore.plugins import PluginRegistry
from tests.experiments.planted import registry_with
from tests.experiments.test_ab import FEED, network


def test_what_is_known_of_a_side() -> None:
    bench = Bench(network(), FEED, "cpu", registry_with())
    side = bench.side(Choices(off=("fuse-pointwise",)))
    assert (side.error, side.wrong, side.rolled_back) == ("", "", "")
    assert side.difference is not None
    assert side.difference.is_right
    assert side.steps == side.nodes > bench.side(Choices()).steps
    assert side.seconds > 0
    assert side.arena % 64 == 0
    assert side.to_json()["choices"] == "-fuse-pointwise"
    assert list(map(str, bench.types)) == ["float32[64,256]"]
    result = bench.runner(side)()
    assert isinstance(result, dict)
    np.testing.assert_array_equal(result["y"], side.outputs["y"])


def test_choices_that_fit_no_pass_raise_and_failures_are_findings() -> None:
    bench = Bench(network(), FEED, "cpu", registry_with())
    with pytest.raises(ConfigError, match="no rule or pass is called 'x'"):
        bench.side(Choices(off=("x",)))
    op = Builder()
    x = op.input("x", "float32", ("n", 4))
    broken = Bench(
        op.graph([x], {"y": op.Reshape(x, shape=(7, 3))}), {"x": np.ones((2, 4), np.float32)}, "cpu", registry_with()
    )
    assert broken.whole is None
    assert broken.no_reference
    failed = broken.side(Choices())
    assert failed.program is None
    assert failed.wrong == failed.error != ""
    with pytest.raises(AicoreError, match="the model does not run with default: "):
        broken.runner(failed)
    assert not broken.between(failed, failed).text


def test_other_devices_are_timed_too(registry: PluginRegistry) -> None:
    bench = Bench(network(), FEED, "fake", registry)
    side = bench.side(Choices())
    assert side.error == ""
    assert bench.target == "fake"
    assert bench.runner(side)() is not None


def test_outputs_are_compared_with_each_other() -> None:
    bench = Bench(network(), FEED, "cpu", registry_with())
    right = bench.side(Choices())
    wrong = Side(Choices(), outputs={"y": right.outputs["y"] * np.float32(2)})
    assert "elements are wrong" in bench.between(wrong, right).text
    assert not bench.is_close(wrong, right)
    assert bench.is_close(right, right)
