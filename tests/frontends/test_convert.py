"""Older opsets mean what their text says; the numbers are derived by hand or in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore.errors import InferenceError, ModelError, UnsupportedError
from aicore.frontends.onnx import load_model
from aicore.frontends.onnx.attributes import Attribute, Attributes
from aicore.frontends.onnx.convert import CONVERSIONS
from tests.frontends.models import FLOAT, model, node, ops_of, run, tensor

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def one(
    kind: str, x: np.ndarray[Any, Any], opset: int, constants: dict[str, Any] | None = None, **attributes: Any
) -> Any:
    """The first output of one node on `x` and constants."""
    constants = constants or {}
    made = model(
        [node(kind, ["x", *constants], ["y"], name="n", **attributes)], {"x": x.shape}, ["y"], constants, opset=opset
    )
    return run(made, x=x)[0]


def softmax(x: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def test_the_softmax_family_flattens_until_opset_12() -> None:
    x = floats(2, 3, 4)
    flat = softmax(x.reshape(2, 12), 1).reshape(2, 3, 4)
    np.testing.assert_allclose(one("Softmax", x, 12), flat, rtol=1e-5)
    np.testing.assert_allclose(one("Softmax", x, 12, axis=0), softmax(x.reshape(1, 24), 1).reshape(2, 3, 4), rtol=1e-5)
    np.testing.assert_allclose(one("Softmax", x, 12, axis=2), softmax(x, 2), rtol=1e-5)
    np.testing.assert_allclose(one("Softmax", x, 12, axis=-2), flat, rtol=1e-5)
    np.testing.assert_allclose(one("Softmax", x, 13), softmax(x, 2), rtol=1e-5)
    np.testing.assert_allclose(one("LogSoftmax", x, 11), np.log(flat), rtol=1e-4)
    assert one("Hardmax", x, 12).sum() == 2
    assert one("Hardmax", x, 13).sum() == 6


def test_the_softmax_of_an_unknown_rank_flattens_too() -> None:
    x = floats(2, 3, 4)
    made = model([node("Softmax", ["x"], ["y"])], [tensor("x", FLOAT, None)], ["y"], opset=12)
    np.testing.assert_allclose(run(made, x=x)[0], softmax(x.reshape(2, 12), 1).reshape(2, 3, 4), rtol=1e-5)


def test_broadcasting_along_an_axis_until_opset_6() -> None:
    x, b = floats(2, 3, 4, 5), floats(3, 4)
    np.testing.assert_array_equal(one("Add", x, 6, {"b": b}, broadcast=1, axis=1), x + b[:, :, None])
    np.testing.assert_array_equal(one("Mul", x, 6, {"b": floats(5) * 0 + 2}, broadcast=1), x * 2)
    np.testing.assert_array_equal(one("Sub", x, 6, {"b": b}, broadcast=1, axis=-3), x - b[:, :, None])
    with pytest.raises(
        ModelError, match=r"Add 'n': float32\[3,4\] does not fit into float32\[2,3,4,5\] from axis 3 on"
    ):
        one("Add", x, 6, {"b": b}, broadcast=1, axis=3)
    inputs = [tensor("x", FLOAT, None), tensor("b", FLOAT, [3])]
    made = model([node("Add", ["x", "b"], ["y"], name="n", broadcast=1, axis=0)], inputs, ["y"], opset=6)
    with pytest.raises(UnsupportedError, match="Add 'n': broadcasting along an axis needs known ranks"):
        load_model(made)


def test_prelu_has_a_slope_for_each_channel_until_opset_6() -> None:
    x, slope = floats(2, 3, 4, 5), floats(3)
    wanted = np.where(x < 0, x * slope[:, None, None], x)
    np.testing.assert_array_equal(one("PRelu", x, 6, {"s": slope}), wanted)
    np.testing.assert_array_equal(one("PRelu", x, 6, {"s": slope[:1]}), np.where(x < 0, x * slope[0], x))
    np.testing.assert_array_equal(one("PRelu", x, 9, {"s": slope[:, None, None]}), wanted)


def test_clip_takes_attributes_until_opset_10() -> None:
    x = np.array([-np.inf, -2, 0.5, 3, np.inf, np.nan], np.float32)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(
        one("Clip", x, 10, min=-1.0, max=1.0), np.array([-1, -1, 0.5, 1, 1, np.nan], np.float32)
    )
    np.testing.assert_array_equal(one("Clip", x, 6), np.array([-largest, -2, 0.5, 3, largest, np.nan], np.float32))
    half = model([node("Clip", ["x"], ["y"], min=0.0)], [tensor("x", onnx.TensorProto.FLOAT16, [2])], ["y"], opset=10)
    np.testing.assert_array_equal(run(half, x=np.array([-1, np.inf], np.float16))[0], np.array([0, np.inf], np.float16))


@pytest.mark.parametrize("opset", [9, 10, 12, 17, 18])
def test_axes_as_attributes_and_operands(opset: int) -> None:
    x = floats(2, 1, 3)
    newer = {"axes": np.array([1])}
    if opset < 13:
        np.testing.assert_array_equal(one("Squeeze", x, opset, axes=[1]), x[:, 0])
        np.testing.assert_array_equal(one("Unsqueeze", x, opset, axes=[0, 4]), x[None, ..., None])
        np.testing.assert_allclose(one("ReduceSum", x, opset, axes=[2], keepdims=0), x.sum(2), rtol=1e-6)
    else:
        np.testing.assert_array_equal(one("Squeeze", x, opset, newer), x[:, 0])
        np.testing.assert_array_equal(one("Unsqueeze", x, opset, newer), x[:, None])
        np.testing.assert_allclose(one("ReduceSum", x, opset, newer), x.sum(1, keepdims=True), rtol=1e-6)
    if opset < 18:
        np.testing.assert_allclose(one("ReduceMean", x, opset, axes=[0, 2]), x.mean((0, 2), keepdims=True), rtol=1e-6)
        np.testing.assert_allclose(one("ReduceMax", x, opset), x.max(keepdims=True))
    else:
        np.testing.assert_allclose(one("ReduceMax", x, opset, newer), x)


def test_slice_pad_and_split_take_attributes_in_old_opsets() -> None:
    x = floats(4, 6)
    np.testing.assert_array_equal(one("Slice", x, 9, starts=[1, -3], ends=[3, 1000], axes=[0, 1]), x[1:3, -3:])
    np.testing.assert_array_equal(
        one("Slice", x, 10, {"s": np.array([5]), "e": np.array([-7]), "a": np.array([1]), "t": np.array([-2])}),
        x[:, ::-2],
    )
    np.testing.assert_array_equal(
        one("Pad", x, 10, pads=[1, 0, 0, 2], value=7.0), np.pad(x, ((1, 0), (0, 2)), constant_values=7)
    )
    np.testing.assert_array_equal(one("Pad", x, 2 + 5, pads=[1, 1, 1, 1], mode="reflect"), np.pad(x, 1, mode="reflect"))
    split = model([node("Split", ["x"], ["a", "b"], axis=1, split=[2, 4])], {"x": [4, 6]}, ["a", "b"], opset=11)
    a, b = run(split, x=x)
    np.testing.assert_array_equal(np.hstack([a, b]), x)
    assert a.shape == (4, 2)


def test_split_without_sizes() -> None:
    x = floats(2, 7)
    unequal = model([node("Split", ["x"], ["a", "b"], axis=1, name="s")], {"x": [2, 7]}, ["a", "b"], opset=13)
    with pytest.raises(ModelError, match="Split 's': dim 7 of axis 1 cannot be split into 2 equal parts"):
        load_model(unequal)
    newer = model([node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2)], {"x": [2, 7]}, ["a", "b"], opset=18)
    assert [part.shape for part in run(newer, x=x)] == [(2, 4), (2, 3)]
    skipped = model([node("Split", ["x"], ["", "b"], axis=1, num_outputs=2)], {"x": [2, 7]}, ["b"], opset=18)
    np.testing.assert_array_equal(run(skipped, x=x)[0], x[:, 4:])
    for attributes, message in (
        ({"num_outputs": 3}, "num_outputs is 3, but it has 2 outputs"),
        ({"num_outputs": 2, "sizes": True}, "has both num_outputs and split"),
    ):
        operands = ["x", "sizes"] if attributes.pop("sizes", False) else ["x"]
        bad = model(
            [node("Split", operands, ["a", "b"], axis=1, name="s", **attributes)],
            {"x": [2, 7]},
            ["a", "b"],
            {"sizes": np.array([3, 4])},
            opset=18,
        )
        with pytest.raises(ModelError, match=f"Split 's': {message}"):
            load_model(bad)


@pytest.mark.parametrize("opset", [7, 10, 11, 13])
def test_top_k(opset: int) -> None:
    x = np.array([[1, 5, 3, 4]], np.float32)
    made = model(
        [node("TopK", ["x"] if opset < 10 else ["x", "k"], ["v", "i"], **({"k": 2} if opset < 10 else {}))],
        {"x": [1, 4]},
        ["v", "i"],
        {} if opset < 10 else {"k": np.array([2])},
        opset=opset,
    )
    values, indices = run(made, x=x)
    assert (values.tolist(), indices.tolist()) == ([[5, 4]], [[1, 3]])


def normalized(x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    scale, bias, mean, var = (np.asarray(v, np.float64).reshape(shape) for v in (scale, bias, mean, var))
    return (x - mean) / np.sqrt(var + 1e-5) * scale + bias


def batch_norm(outputs: list[str], opset: int, shape: tuple[int, ...], **attributes: Any) -> tuple[Any, Any]:
    x, (scale, bias, mean) = floats(*shape), (floats(shape[1]) for _ in range(3))
    constants = {"s": scale, "b": bias, "m": mean, "v": np.abs(floats(shape[1])) + 1}
    nodes = [node("BatchNormalization", ["x", *constants], outputs, name="bn", **attributes)]
    return run(model(nodes, {"x": shape}, [o for o in outputs if o], constants, opset=opset), x=x), (
        x,
        *constants.values(),
    )


@pytest.mark.parametrize(
    ("opset", "attributes"), [(6, {"is_test": 1}), (7, {}), (8, {"spatial": 1}), (9, {}), (14, {})]
)
def test_batch_normalization_of_inference(opset: int, attributes: dict[str, int]) -> None:
    (y,), operands = batch_norm(["y"], opset, (2, 3, 4, 5), **attributes)
    np.testing.assert_allclose(y, normalized(*operands), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [8, 9, 13])
def test_batch_normalization_that_gives_statistics_trains(opset: int) -> None:
    outputs, (x, scale, bias, mean, var) = batch_norm(["y", "m1", "v1", "sm", "sv"], opset, (4, 3, 5), momentum=0.75)
    y, running_mean, running_var, saved_mean, saved_var = outputs
    batch_mean, batch_var = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(y, normalized(x, scale, bias, batch_mean, batch_var), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(running_mean, mean * 0.75 + batch_mean * 0.25, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(running_var, var * 0.75 + batch_var * 0.25, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(saved_mean, batch_mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(saved_var, batch_var, rtol=1e-4, atol=1e-5)


def test_batch_normalization_with_statistics_for_each_element() -> None:
    x, (scale, bias, mean) = floats(2, 3, 4), (floats(3, 4) for _ in range(3))
    var = np.abs(floats(3, 4)) + 1
    constants = {"s": scale, "b": bias, "m": mean, "v": var}
    y = one("BatchNormalization", x, 8, constants, spatial=0)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(var + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)
    made = model(
        [node("BatchNormalization", ["x", *constants], ["y", "m1", "v1", "m2", "v2"], name="bn", spatial=0)],
        {"x": [2, 3, 4]},
        ["y"],
        constants,
        opset=8,
    )
    with pytest.raises(UnsupportedError, match="BatchNormalization 'bn': training with spatial=0"):
        load_model(made)


@pytest.mark.parametrize(("opset", "dtype"), [(7, np.float32), (10, np.bool_), (12, np.bool_), (22, np.bool_)])
def test_dropout_in_inference_is_the_identity(opset: int, dtype: Any) -> None:
    x = floats(3, 4)
    y, mask = run(model([node("Dropout", ["x"], ["y", "m"])], {"x": [3, 4]}, ["y", "m"], opset=opset), x=x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == dtype
    assert mask.all()


def test_dropout_that_trains_draws_from_its_seed() -> None:
    x, training = np.ones(1000, np.float32), {"r": np.float32(0.25), "t": np.array(True)}
    nodes = [node("Dropout", ["x", "r", "t"], ["y", "m"], name="d", seed=3)]
    made = model(nodes, {"x": [1000]}, ["y", "m"], training, opset=13)
    y, mask = run(made, x=x)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), np.float32(0)))
    assert 650 < mask.sum() < 850  # 750 expected, and a deviation of 14
    np.testing.assert_array_equal(run(made, x=x)[0], y)
    del made.graph.node[0].attribute[:]
    assert not np.array_equal(*(run(made, x=x)[0] for _ in range(2)))
    np.testing.assert_array_equal(one("Dropout", floats(3) * 0 + 2, 13, training | {"r": np.float32(0)}), [2, 2, 2])


def test_dropout_that_trains_in_opset_6_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Dropout 'd': training"):
        load_model(model([node("Dropout", ["x"], ["y"], name="d", ratio=0.5)], {"x": [3]}, ["y"], opset=6))


@pytest.mark.parametrize(("kind", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_upsampling_before_opset_11_is_asymmetric(kind: str, opset: int) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    scales = np.array([1, 1, 2, 3], np.float32)
    given: dict[str, Any] = {"scales": scales.tolist()} if opset == 7 else {"constants": {"s": scales}}
    np.testing.assert_array_equal(one(kind, x, opset, **given), x.repeat(2, 2).repeat(3, 3))
    linear = one(kind, x, opset, mode="linear", **given)
    # asymmetric: source column 0, 1/3, 2/3, 1, 4/3, 5/3, cut off at the last one
    np.testing.assert_allclose(linear[0, 0, 0], [0, 1 / 3, 2 / 3, 1, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(linear[0, 0, :, 0], [0, 1, 2, 2], rtol=1e-6)


def test_resize_10_shrinks_upwards() -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    shrunk = one("Resize", x, 10, {"s": np.array([1, 1, 0.6, 0.6], np.float32)})
    np.testing.assert_array_equal(shrunk, [[[[1, 3]]]])
    both = one("Resize", x, 10, {"s": np.array([1, 1, 2, 0.6], np.float32)})
    np.testing.assert_array_equal(both, [[[[1, 3], [1, 3], [5, 7], [5, 7]]]])
    made = model([node("Resize", ["x", "s"], ["y"], name="r")], {"x": [1, 1, 2, 4], "s": [4]}, ["y"], opset=10)
    with pytest.raises(UnsupportedError, match="Resize 'r': nearest with scales that are computed needs opset 11"):
        load_model(made)


@pytest.mark.parametrize("opset", [11, 13, 19])
def test_resize_takes_empty_tensors_for_absent_operands(opset: int) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    empty = np.zeros(0, np.float32)
    made = model(
        [
            node(
                "Resize",
                ["x", "r", "s", "n"],
                ["y"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        ],
        {"x": [1, 1, 2, 2]},
        ["y"],
        {"r": empty, "s": empty, "n": np.array([1, 1, 4, 4])},
        opset=opset,
    )
    np.testing.assert_array_equal(run(made, x=x)[0], x.repeat(2, 2).repeat(2, 3))


def test_group_normalization_had_a_scale_for_each_group() -> None:
    x, scale, bias = floats(2, 6, 5), floats(3), floats(3)
    groups = x.reshape(2, 3, 10).astype(np.float64)
    unit = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    wanted = (unit * scale[:, None] + bias[:, None]).reshape(2, 6, 5)
    np.testing.assert_allclose(
        one("GroupNormalization", x, 18, {"s": scale, "b": bias}, num_groups=3), wanted, rtol=1e-4, atol=1e-5
    )
    channels = {"s": scale.repeat(2), "b": bias.repeat(2)}
    np.testing.assert_allclose(one("GroupNormalization", x, 21, channels, num_groups=3), wanted, rtol=1e-4, atol=1e-5)
    for shape, message in ((None, "known rank"), ([2, "C", 5], "known number of channels")):
        made = model(
            [node("GroupNormalization", ["x", "s", "b"], ["y"], name="g", num_groups=3)],
            [tensor("x", FLOAT, shape)],
            ["y"],
            {"s": scale, "b": bias},
            opset=18,
        )
        with pytest.raises(UnsupportedError, match=f"GroupNormalization 'g': needs .*{message}"):
            load_model(made)


def test_gemm_before_opset_7() -> None:
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    y = one("Gemm", a, 6, {"b": b, "c": c}, broadcast=1, alpha=0.5, beta=2.0)
    np.testing.assert_allclose(y, 0.5 * a @ b + 2 * c, rtol=1e-5, atol=1e-5)


def test_scatter_is_the_old_name_of_scatter_elements() -> None:
    constants = {"i": np.array([[1, 0]]), "u": np.array([[7, 8]], np.float32)}
    y = one("Scatter", np.zeros((2, 2), np.float32), 10, constants)
    np.testing.assert_array_equal(y, [[0, 8], [7, 0]])


def test_roi_align_did_not_shift_until_opset_15() -> None:
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    regions = {"rois": np.array([[1, 1, 4, 5]], np.float32), "batches": np.array([0])}
    options = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    old = one("RoiAlign", x, 10, regions, **options)
    # bins of 2 rows and 1.5 columns from (1, 1) on: the mean of a ramp is its value at the centre of the bin
    np.testing.assert_allclose(old[0, 0], [[13.75, 15.25], [25.75, 27.25]], rtol=1e-6)
    same = {**options, "coordinate_transformation_mode": "output_half_pixel"}
    np.testing.assert_array_equal(old, one("RoiAlign", x, 16, regions, **same))
    np.testing.assert_allclose(one("RoiAlign", x, 16, regions, **options), old - 3.5, rtol=1e-6)


def test_grid_sample_had_other_names_for_its_modes() -> None:
    x, grid = floats(1, 1, 4, 4), {"grid": np.clip(floats(1, 3, 3, 2), -1, 1)}
    for old, new in (("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")):
        np.testing.assert_array_equal(
            one("GridSample", x, 16, grid, mode=old), one("GridSample", x, 20, grid, mode=new)
        )
    np.testing.assert_array_equal(one("GridSample", x, 16, grid), one("GridSample", x, 20, grid))


def test_a_variadic_operator_with_one_operand() -> None:
    x = floats(3)
    for kind in ("Sum", "Mean", "Max", "Min"):
        np.testing.assert_array_equal(one(kind, x, 13), x)


def test_constants_in_all_their_forms() -> None:
    dense = onnx.numpy_helper.from_array(np.array([1, 2], np.float32))
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", FLOAT, [1], [3.0]), helper.make_tensor("i", 7, [1], [1]), [2]
    )
    forms: dict[str, Any] = {
        "value": dense,
        "sparse_value": sparse,
        "value_float": 1.5,
        "value_floats": [1.0, 2.0],
        "value_int": 7,
        "value_ints": [1, 2],
        "value_string": "a",
        "value_strings": ["a", "b"],
    }
    wanted = {
        "value": [1, 2],
        "sparse_value": [0, 3],
        "value_float": 1.5,
        "value_floats": [1, 2],
        "value_int": 7,
        "value_ints": [1, 2],
        "value_string": "a",
        "value_strings": ["a", "b"],
    }
    for name, value in forms.items():
        graph = load_model(model([node("Constant", [], ["y"], **{name: value})], {}, ["y"]))
        assert graph.nodes == ()
        constant = graph.outputs[0][1].constant
        assert constant is not None
        assert constant.array.tolist() == wanted[name]


def test_a_constant_has_one_value() -> None:
    with pytest.raises(ModelError, match="Constant 'c': wants exactly one value, has none"):
        load_model(model([node("Constant", [], ["y"], name="c")], {}, ["y"]))
    with pytest.raises(ModelError, match=r"has value_int, value_ints|has value_ints, value_int"):
        load_model(model([node("Constant", [], ["y"], name="c", value_int=1, value_ints=[1])], {}, ["y"]))


def test_an_attribute_that_nobody_reads_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    conversion = CONVERSIONS["", "Split"][0]
    forgetful = type(conversion)(1, 99, lambda source: source.op.Relu(source.operand()))
    monkeypatch.setitem(CONVERSIONS, ("", "Elu"), [forgetful])
    made = model([node("Elu", ["x"], ["y"], name="e", alpha=2.0)], {"x": [1]}, ["y"])
    with pytest.raises(UnsupportedError, match="Elu 'e': attribute 'alpha' is not supported"):
        load_model(made)


def test_attributes_know_what_was_read() -> None:
    attributes = Attributes({"a": Attribute("INT", 1), "b": Attribute("INT", 2), "c": Attribute("INT", 3)})
    assert (attributes.read("a"), attributes.peek("b"), attributes.read("z", 9)) == (1, 2, 9)
    attributes.ignore("c")
    assert list(attributes.unread()) == ["b"]
    assert "b" in attributes


def test_an_output_that_no_op_gives() -> None:
    made = model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "extra"], name="bn")],
        {"x": [1, 2]},
        ["y"],
        {n: np.ones(2, np.float32) for n in "sbmv"},
        opset=15,
    )
    with pytest.raises(UnsupportedError, match=r"BatchNormalization 'bn': gives no output number 1 .'extra'"):
        load_model(made)


def test_element_types_in_attributes() -> None:
    assert ops_of(model([node("Cast", ["x"], ["y"], to=7)], {"x": [1]}, ["y"])) == ["Cast"]
    with pytest.raises((UnsupportedError, InferenceError), match="Cast 'c': attribute 'to': element type number 99"):
        load_model(model([node("Cast", ["x"], ["y"], name="c", to=99)], {"x": [1]}, ["y"]))


def test_random_numbers_follow_from_their_seed() -> None:
    for kind, least, most in (("RandomUniform", 0, 1), ("RandomNormal", -6, 6)):
        seeded = model([node(kind, [], ["y"], shape=[64], seed=2.0, dtype=11)], {}, ["y"], opset=21)
        (y,), (again,) = run(seeded), run(seeded)
        assert y.dtype == np.float64
        assert least <= y.min() < y.max() < most
        np.testing.assert_array_equal(y, again)
        other = model([node(kind, [], ["y"], shape=[64], seed=3.0, dtype=11)], {}, ["y"], opset=21)
        assert not np.array_equal(y, run(other)[0])
        free = model([node(kind, [], ["a"], shape=[64]), node(kind, [], ["b"], shape=[64])], {}, ["a", "b"], opset=21)
        a, b = run(free)
        assert not np.array_equal(a, b)
        assert not np.array_equal(a, run(free)[0])


def test_random_numbers_like_a_tensor() -> None:
    x = floats(2, 3).astype(np.float16)
    made = model([node("RandomUniformLike", ["x"], ["y"], low=5.0, high=6.0)], [tensor("x", 10, [2, 3])], ["y"])
    (y,) = run(made, x=x)
    assert (y.dtype, y.shape) == (np.float16, (2, 3))
    assert ((y >= 5) & (y <= 6)).all()
    (y,) = run(
        model([node("RandomNormalLike", ["x"], ["y"], dtype=1, mean=1e3)], {"x": ["N", 3]}, ["y"]), x=floats(4, 3)
    )
    assert (y.dtype, y.shape) == (np.float32, (4, 3))
    assert 990 < y.min() < y.max() < 1010


def test_multinomial_draws_by_weight() -> None:
    """Weights of 1 : 3, and one class alone: of 4000 draws, 1000 with a deviation of 27."""
    x = np.log(np.float32([[1, 3], [1, 1e-30]]))
    made = model([node("Multinomial", ["x"], ["y"], sample_size=4000, seed=1.0)], {"x": [2, 2]}, ["y"], opset=21)
    (y,) = run(made, x=x)
    assert (y.dtype, y.shape) == (np.int32, (2, 4000))
    assert 800 < (y[0] == 0).sum() < 1200
    assert not y[1].any()
    with pytest.raises(ModelError, match="Multinomial 'n': sample_size is 0"):
        one("Multinomial", x, 21, sample_size=0)


def test_bernoulli_is_one_with_the_given_probability() -> None:
    x = np.repeat(np.float32([0, 0.25, 1]), 4000)
    y = one("Bernoulli", x, 21, seed=1.0).reshape(3, 4000)
    assert y.dtype == np.float32
    assert [y[0].sum(), y[2].sum()] == [0, 4000]
    assert 800 < y[1].sum() < 1200


def test_the_axis_of_a_fourier_transform_was_an_attribute() -> None:
    """Until opset 19 the first axis behind the batch by default; of ones it gives the length, and zeros."""
    x = np.ones((1, 4, 3, 1), np.float32)
    for opset, axis in ((17, 1), (20, 2)):
        y = one("DFT", x, opset)
        assert y.shape == (1, 4, 3, 2)
        wanted = np.zeros_like(y)
        wanted[(slice(None),) * axis + (0,)] = [x.shape[axis], 0]
        np.testing.assert_allclose(y, wanted, atol=1e-6)
    np.testing.assert_array_equal(one("DFT", x, 17, axis=2), one("DFT", x, 20))


def test_element_type_0_is_that_of_the_zero_point() -> None:
    x = np.float32([1, -1])
    constants = {"s": np.float32(0.5), "z": np.int8(1)}
    assert one("QuantizeLinear", x, 25, constants, output_dtype=0, precision=0).tolist() == [3, -1]
    quantized = model([node("DequantizeLinear", ["x", "s"], ["y"], output_dtype=0)], [tensor("x", 3, [2])], ["y"],
                      {"s": np.float32(0.5)}, opset=23)  # fmt: skip
    assert run(quantized, x=np.int8([3, -1]))[0].tolist() == [1.5, -0.5]
