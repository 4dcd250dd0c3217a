"""The diagnosis finds the layer that is to blame, and leaving it out restores the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Graph, Origin
from aicore_int8_quant import QuantizationError, QuantizedModel, analyze, quantize
from aicore_int8_quant.analysis.analyze import Analysis
from aicore_int8_quant.analysis.measures import Power, sqnr
from aicore_int8_quant.analysis.metrics import cosine, find_metric, relative, top1
from aicore_int8_quant.exclusion import exclude_most_sensitive, keep_until, split_exclusions

Array = np.ndarray[Any, Any]


def with_outlier(net: Any) -> Graph:
    """Three convolutions; one channel in front of `planted` is 3000 times the others, and its weights as much smaller.

    In floating point nothing is wrong with that. One scale for the tensor leaves the other channels almost no codes.
    """
    op = net.op
    x = op.input("x", "float32", ("n", 3, 12, 12))
    a = op.Relu(net.conv(x, 16, name="first"))
    size = np.ones((16, 1, 1), np.float32)
    size[5] = 3000
    a = op.Mul(a, op.constant(size))
    w = net.normal(16, 16, 3, 3, scale=0.1) / size
    planted = op.apply(_conv(), a, op.constant(w), names=["planted"], origin=Origin("planted"))
    b = op.Relu(net.conv(op.Relu(planted), 16, name="third"))
    y = op.Gemm(op.Flatten(op.GlobalAveragePool(b)), op.constant(net.normal(16, 10)), None)
    return op.graph([x], {"y": y})


def _conv() -> Any:
    from aicore.ops.convolution import Conv

    return Conv(pads=(1, 1, 1, 1))


@pytest.fixture(scope="module")
def planted(make_network: Callable[[], Any]) -> tuple[QuantizedModel, list[Array]]:
    rng = np.random.default_rng(5)
    data = [rng.standard_normal((16, 3, 12, 12)).astype(np.float32) for _ in range(2)]
    return quantize(with_outlier(make_network()), data), data


@pytest.fixture(scope="module")
def analysis(planted: tuple[QuantizedModel, list[Array]]) -> Analysis:
    model, data = planted
    return analyze(model, data, name="planted </script><b>")


def test_the_planted_layer_is_ranked_first(analysis: Analysis) -> None:
    first, second = analysis.layers[:2]
    assert first["name"] == "planted"
    assert first["alone_sqnr"] < second["alone_sqnr"] - 10
    assert first["activation_sqnr"] < first["weight_sqnr"] - 10  # its input is to blame, not its weight
    assert first["spared_sqnr"] == max(layer["spared_sqnr"] for layer in analysis.layers)
    assert first["input"]["seen"][1] > 1000


def test_leaving_it_out_restores_the_model(planted: tuple[QuantizedModel, list[Array]], analysis: Analysis) -> None:
    model, data = planted
    better = exclude_most_sensitive(model, [{"x": x} for x in data], 1)
    assert list(better.kept) == ["planted"]
    exact = aicore.compile(model.prepared, "cpu").run({"x": data[0]})["y"]
    before, after = (m.compile("cpu").run({"x": data[0]})["y"] for m in (model, better))
    assert sqnr(exact, before) < 15
    assert sqnr(exact, after) > 30
    assert analysis.kept[0]["count"] == 0
    assert analysis.kept[1]["sqnr"] > analysis.kept[0]["sqnr"] + 10
    assert math.isinf(analysis.kept[-1]["sqnr"])


def test_as_few_layers_as_the_metric_needs(planted: tuple[QuantizedModel, list[Array]]) -> None:
    model, data = planted
    feeds = [{"x": x} for x in data]
    found = keep_until(model, feeds, relative, 5.0)
    assert found.excluded == ("planted",)
    assert found.score > 95
    assert keep_until(model, feeds, relative, 100.0).excluded == ()
    with pytest.raises(QuantizationError, match="float model itself"):
        keep_until(model, feeds, lambda wanted, got: 0.0 if got is not wanted else 9.0, 1.0)


def test_every_number_of_a_layer_is_there(analysis: Analysis) -> None:
    for layer in analysis.layers:
        assert layer["kernel"] in ("int8conv_strips", "int8conv_im2col", "int8matmul_blas")
        assert layer["milliseconds"] > 0
        assert layer["float_milliseconds"] > 0
        assert layer["saturation"] == 0  # minmax, on the data of the calibration
        assert 0 < layer["range_use"] <= 1.01
        assert layer["bias"] in ("int32", "none")
        assert layer["weight"]["channel_spread"] >= 1
        assert sum(layer["histogram"]["counts"]) > 0
        assert layer["accumulated_sqnr"] <= layer["local_sqnr"] + 3


def test_clipping_is_reported(planted: tuple[QuantizedModel, list[Array]]) -> None:
    model, data = planted
    clipped = quantize(model.prepared, data, method="percentile", method_options={"percentile": 90.0})
    layers = {layer["name"]: layer for layer in analyze(clipped, data, batches=1).layers}
    assert 0.08 < layers["first"]["saturation"] < 0.12
    assert layers["first"]["range_use"] > 1


def test_json_and_page_stand_alone(analysis: Analysis) -> None:
    page = analysis.page()
    assert "planted &lt;/script&gt;&lt;b&gt;" in page
    assert "</script><b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<svg") == 1 + len(analysis.layers)
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert [layer["name"] for layer in data["layers"]] == [layer["name"] for layer in analysis.layers]


def test_identical_tensors_have_an_infinite_sqnr() -> None:
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert sqnr(x, x) == math.inf
    assert sqnr(np.float32([3, 4]), np.float32([3, 4.5])) == pytest.approx(20.0)  # 25 against 0.25
    assert sqnr(np.float32([1]), np.float32([np.nan])) == -math.inf
    assert Power().sqnr == math.inf


def test_metrics_are_100_for_the_model_itself() -> None:
    one = [{"y": np.float32([[1, 2], [4, 3]])}]
    for metric in (top1, cosine, relative):
        assert metric(one, one) == pytest.approx(100)
    other = [{"y": np.float32([[2, 1], [4, 3]])}]
    assert top1(one, other) == 50
    assert relative(one, other) == pytest.approx(100 * (1 - (2 / 30) ** 0.5))
    assert find_metric("aicore_int8_quant.analysis.metrics:cosine") is cosine
    with pytest.raises(QuantizationError, match="there is no metric 'best'"):
        find_metric("best")


def test_how_many_are_to_be_found() -> None:
    assert split_exclusions(["a", "auto:2", "b*"]) == (("a", "b*"), 2)
    with pytest.raises(QuantizationError, match="write auto:3"):
        split_exclusions(["auto"])
