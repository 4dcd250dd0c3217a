"""Winograd convolutions: the algebra by itself, then float64's numbers for every geometry and share of the work."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import Op, TensorType, symbol
from aicore.kernels import Kernel
from aicore.numerics import expect
from aicore.ops.activation import Clip, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Swish
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _winograd_tiles, last_convolution, last_winograd
from aicore_cpu_numpy.fast._winograd_calls import convolve_plainly
from aicore_cpu_numpy.fast._winograd_forms import FORM_2, FORM_4, Form, transform_weights
from aicore_cpu_numpy.fast.last_winograd import KERNELS, LEAST_CHANNELS
from aicore_cpu_numpy.workers import single_threaded_blas

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

VARIANTS = ("winograd4", "winograd2")
ROUNDINGS = {"winograd4": 32, "winograd2": 8}
"""Of float32, that results may be off by, relative to the largest sum of absolute products; a plain sum takes about 3.

Measured over normal, rectified and heavy-tailed images, 1 to 512 channels: at most 21 and 4."""
ROUNDOFF = 2.0**-24


def found(variant: str, inner: type[Op]) -> Kernel:
    return next(k for k in KERNELS if k.variant == variant and k.wraps is inner)


def types_of(arrays: Sequence[Array | None]) -> list[TensorType | None]:
    return [None if a is None else TensorType(a.dtype.name, a.shape) for a in arrays]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def convolved(x: Array, w: Array, pads: Sequence[int]) -> Array:
    """The plain sum in float64: x (N, H, W, C), w (O, C, 3, 3)."""
    top, left, bottom, right = pads
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    taps = [
        (x[:, i : i + height, j : j + width], w[:, :, i, j].T.astype(np.float64)) for i in range(3) for j in range(3)
    ]
    return sum((window @ tap for window, tap in taps), np.zeros(()))


class Placed:
    """A kernel bound and placed as in a plan, over memory full of NaN, its output inside of a larger array."""

    def __init__(self, kernel: Kernel, op: Op, arrays: Sequence[Array | None], shape: Sequence[int], **chosen: Any):
        constants = chosen.pop("constants", [None, *arrays[1:2], *[None] * len(arrays[2:])])
        chosen = {**kernel.settings[0], **chosen}
        types = types_of(arrays)
        assert kernel.reason_against(op, *types) is None
        assert kernel.workspace is not None
        assert kernel.bind is not None
        self.nbytes = kernel.workspace(op, *types, **chosen)
        bound: Any = kernel.bind(op, types, constants, **chosen)
        self.memory = np.full(self.nbytes + 128, 255, np.uint8)
        self.guarded = np.full(math.prod(shape) + 32, np.nan, np.float32)
        self.out = self.guarded[16:-16].reshape(shape)
        operands = [None if a is None else a.view() for a in arrays]
        for operand in operands:
            if operand is not None:
                operand.flags.writeable = False
        start = -self.memory.ctypes.data % 64
        self.workspace = self.memory[start : start + self.nbytes]
        self.call = bound.place(*operands, out=self.out, workspace=self.workspace)

    def run(self) -> Array:
        with np.errstate(all="ignore"), single_threaded_blas():
            self.call()
        assert np.isnan(self.guarded[:16]).all(), "wrote in front of the output"
        assert np.isnan(self.guarded[-16:]).all(), "wrote behind the output"
        found = self.out.copy()
        self.out.fill(np.nan)
        used = self.workspace.ctypes.data - self.memory.ctypes.data
        assert (self.memory[used + self.nbytes :] == 255).all(), "wrote behind the workspace"
        self.workspace.fill(255)
        return found


def convolve(variant: str, x: Array, w: Array, pads: Sequence[int], **chosen: Any) -> Array:
    shape = (x.shape[0], x.shape[1] + pads[0] + pads[2] - 2, x.shape[2] + pads[1] + pads[3] - 2, w.shape[0])
    op = ChannelsLast(Conv(pads=tuple(pads)))
    return Placed(found(variant, Conv), op, [x, w], shape, **chosen).run()


def check(variant: str, got: Array, wanted: Array, magnitude: Array) -> None:
    assert got.shape == wanted.shape
    limit = ROUNDINGS[variant] * ROUNDOFF * magnitude.max(initial=0)
    assert np.abs(got - wanted).max(initial=0) <= limit


@pytest.mark.parametrize("form", [FORM_2, FORM_4], ids=["F2", "F4"])
def test_the_identity_of_one_dimension(form: Form) -> None:
    """y = A^T [(G g) * (B^T d)], with the matrices that the stages are."""
    rng = np.random.default_rng(0)
    m, n = form.outputs, form.inputs
    d, g = rng.standard_normal(n), rng.standard_normal(3)
    read = _matrix(form.read, n, n)
    write = _matrix(form.write, n, m)
    wanted = [d[i : i + 3] @ g for i in range(m)]
    np.testing.assert_allclose(write @ ((form.kernel @ g) * (read @ d)), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", [FORM_2, FORM_4], ids=["F2", "F4"])
def test_stages_take_as_many_calls_as_they_say(form: Form) -> None:
    rows = [np.zeros(1) for _ in range(form.inputs)]
    three = rows[:3]
    assert len(form.read(rows, rows, three, np.asarray)) == form.reads
    assert len(form.write(rows, rows, three, np.asarray)) == form.writes


def _matrix(stage: Any, sources: int, targets: int) -> Array:
    """The stage's matrix: its results for each unit vector, from targets and temporaries full of NaN."""
    columns = list(np.eye(sources))
    results = [np.full(sources, np.nan) for _ in range(targets)]
    for call in stage(columns, results, [np.full(sources, np.nan) for _ in range(3)], np.asarray):
        call()
    return np.array(results)


def test_transformed_weights_by_hand() -> None:
    """F(2 x 2) with a kernel of one 1 in the middle of three: G = (1/2, -1/2) at the points 1 and -1, else 0."""
    w = np.zeros((1, 1, 3, 3), np.float32)
    w[0, 0, 1, 1] = 1
    wanted = np.zeros((4, 4))
    wanted[1:3, 1:3] = [[0.25, -0.25], [-0.25, 0.25]]
    np.testing.assert_array_equal(transform_weights(FORM_2, w).reshape(4, 4), wanted)


def test_transformed_weights_are_rounded_once() -> None:
    w = normal(np.random.default_rng(1), 3, 700, 3, 3)  # so many channels take more than one slice
    wide = np.einsum("ij,ocjk,lk->ilco", FORM_4.kernel, w.astype(np.float64), FORM_4.kernel).reshape(36, 700, 3)
    np.testing.assert_allclose(transform_weights(FORM_4, w), wide, rtol=ROUNDOFF, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    variant=st.sampled_from(VARIANTS),
    spatial=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    images=st.integers(0, 3),
    channels=st.integers(LEAST_CHANNELS, 20),
    maps=st.integers(1, 9),
    tiles=st.sampled_from([1, 3, 8, 256]),
    split=st.sampled_from(["rows", "maps"]),
    strip=st.sampled_from([1, 40, 100, 1 << 14]),
    threads=st.integers(1, 4),
)
def test_any_geometry(
    variant: str,
    spatial: tuple[int, int],
    pads: tuple[int, ...],
    images: int,
    channels: int,
    maps: int,
    tiles: int,
    split: str,
    strip: int,
    threads: int,
) -> None:
    if spatial[0] + pads[0] + pads[2] < 3 or spatial[1] + pads[1] + pads[3] < 3:
        return
    rng = np.random.default_rng(images + channels)
    x, w = normal(rng, images, *spatial, channels), normal(rng, maps, channels, 3, 3)
    with _small_strips(strip), using_threads(threads):
        got = convolve(variant, x, w, pads, tiles=tiles, split=split)
    check(variant, got, convolved(x, w, pads), convolved(np.abs(x), np.abs(w), pads))


def _small_strips(elements: int) -> Any:
    """Cut small images up as large ones are, and share out what would not be worth it."""
    patch = pytest.MonkeyPatch()
    context = patch.context()
    patched = context.__enter__()
    patched.setattr(_winograd_tiles, "STRIP_ELEMENTS", elements)
    patched.setattr(_winograd_tiles, "PARALLEL", 0.0)
    last_winograd._parts.cache_clear()
    return _Cleared(context)


class _Cleared:
    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
        last_winograd._parts.cache_clear()


FUSED = (
    *[(ConvAct, activation) for activation in (Relu(), Clip(-0.5, 0.75), LeakyRelu(0.2), HardSwish(), Swish(2.0))],
    (ConvAdd, None),
    *[(ConvAddAct, activation) for activation in (Relu(), Sigmoid(), HardSwish())],
    (Conv, None),
)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("inner", "activation"), FUSED)
@pytest.mark.parametrize("bias", [None, "constant", "given"])
@pytest.mark.parametrize("spatial", [(8, 12), (7, 9)], ids=["even", "ragged"])
def test_what_follows(
    variant: str, inner: Any, activation: Op | None, bias: str | None, spatial: tuple[int, int], reference: Run
) -> None:
    rng = np.random.default_rng(3)
    conv = Conv(pads=(1, 1, 1, 1))
    held = conv if inner is Conv else inner(conv) if activation is None else inner(conv, activation)
    x, w, b = normal(rng, 2, *spatial, 17), normal(rng, 6, 17, 3, 3) / 12, normal(rng, 6)
    residual = [normal(rng, 2, *spatial, 6)] if inner in (ConvAdd, ConvAddAct) else []
    arrays = [x, w, *residual, *([] if bias is None else [b])]
    constants = [None, w, *[None] * len(residual), *([] if bias is None else [b if bias == "constant" else None])]
    for split in ("rows", "maps"):
        with using_threads(2), _small_strips(100):
            placed = Placed(
                found(variant, inner), ChannelsLast(held), arrays, (2, *spatial, 6), constants=constants, split=split
            )
        (wanted,) = reference(ChannelsLast(held), [a.astype(np.float64) for a in arrays])
        np.testing.assert_allclose(placed.run(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [16, 64, 512])
@pytest.mark.parametrize("kind", ["normal", "rectified", "heavy-tailed"])
def test_rounding_is_relative_to_the_largest_numbers(variant: str, channels: int, kind: str) -> None:
    rng = np.random.default_rng(channels)
    x = normal(rng, 1, 14, 14, channels)
    x = {"normal": x, "rectified": np.maximum(x, 0), "heavy-tailed": np.maximum(x, 0) ** 3}[kind]
    w = normal(rng, 16, channels, 3, 3)
    got = convolve(variant, x, w, (1, 1, 1, 1))
    check(variant, got, convolved(x, w, (1,) * 4), convolved(np.abs(x), np.abs(w), (1,) * 4))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [LEAST_CHANNELS, 128])
def test_within_the_tolerance_of_the_op(variant: str, channels: int, reference: Run) -> None:
    """The tolerance for plain sums, element by element, has room for it."""
    rng = np.random.default_rng(channels)
    x, w = np.maximum(normal(rng, 2, 13, 14, channels), 0), normal(rng, 24, channels, 3, 3)
    (first,) = x[:1].transpose(0, 3, 1, 2)[None]
    conv = Conv(kernel_shape=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1))
    expected = expect(lambda op, *arrays: reference(op, arrays), conv, [first, w], ["float32"])
    got = convolve(variant, x[:1], w, (1, 1, 1, 1)).transpose(0, 3, 1, 2)
    assert expected.fault([got]) == ""
    assert expected.fault([got * np.float32(1.01)]) != ""


SPECIAL = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("split", ["rows", "maps"])
@pytest.mark.parametrize("spatial", [(16, 16), (9, 11)], ids=["even", "ragged"])
def test_special_numbers_go_where_they_belong(variant: str, value: float, split: str, spatial: tuple[int, int]) -> None:
    """To the nine outputs whose windows hold them, and nowhere else."""
    rng = np.random.default_rng(5)
    clean, w = normal(rng, 2, *spatial, 16), normal(rng, 5, 16, 3, 3)
    x = clean.copy()
    x[1, 5, 6, 3] = value
    x[0, -1, -1, 0] = value
    with using_threads(2), _small_strips(64):
        got = convolve(variant, x, w, (1, 1, 1, 1), split=split, tiles=4)
    wanted = convolved(clean, w, (1,) * 4)
    hit = np.zeros(wanted.shape, bool)
    hit[1, 4:7, 5:8] = hit[0, -2:, -2:] = True
    assert not np.isfinite(got[hit]).any()
    if not np.isnan(value):
        np.testing.assert_array_equal(got[hit], convolved(x, w, (1,) * 4)[hit].astype(np.float32))
    magnitude = convolved(np.abs(clean), np.abs(w), (1,) * 4)
    check(variant, got[~hit], wanted[~hit], magnitude)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_transform_that_overflows(variant: str) -> None:
    x = np.full((1, 8, 8, 16), 3e37, np.float32)
    w = np.full((2, 16, 3, 3), 1 / 256, np.float32)
    x[..., 1::2] *= -1
    with _small_strips(64):
        got = convolve(variant, x, w, (0, 0, 0, 0))
    assert np.abs(got).max() <= 144 * 144 * ROUNDOFF * 3e37 / 256  # of 144 terms that cancel


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", SPECIAL)
def test_special_numbers_in_the_weights(variant: str, value: float) -> None:
    rng = np.random.default_rng(6)
    x, w = np.abs(normal(rng, 1, 6, 6, 16)) + 1, normal(rng, 3, 16, 3, 3)
    w[1, 4, 2, 2] = value
    got = convolve(variant, x, w, (0, 0, 0, 0))
    assert np.isfinite(got[..., [0, 2]]).all()
    np.testing.assert_array_equal(got[..., 1], np.float32(value))


def test_plain_sums_of_a_part() -> None:
    """What is beyond the image counts as zero, wherever the window starts."""
    rng = np.random.default_rng(7)
    image, w = normal(rng, 5, 6, 2), normal(rng, 3, 2, 3, 3)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    for corner in itertools.product((-4, -1, 0, 3), (-4, -1, 0, 4)):
        target = np.full((3, 2, 3), np.nan, np.float32)
        part = padded[corner[0] + 4 : corner[0] + 9, corner[1] + 4 : corner[1] + 8]
        wanted = convolved(np.pad(part, ((0, 5 - len(part)), (0, 4 - part.shape[1]), (0, 0)))[None], w, (0,) * 4)[0]
        convolve_plainly(image, w, target, corner, np.full(2 * 3 + 2 * 3, np.nan, np.float32))
        np.testing.assert_allclose(target, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_that_change(variant: str) -> None:
    rng = np.random.default_rng(8)
    x, w = normal(rng, 1, 9, 9, 16), normal(rng, 4, 16, 3, 3)
    op = ChannelsLast(Conv(pads=(1, 1, 1, 1)))
    placed = Placed(found(variant, Conv), op, [x, w], (1, 9, 9, 4), constants=[None, None])
    for _ in range(2):
        check(variant, placed.run(), convolved(x, w, (1,) * 4), convolved(np.abs(x), np.abs(w), (1,) * 4))
        w[...] = normal(rng, *w.shape)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("split", ["rows", "maps"])
def test_several_arenas_at_once(variant: str, split: str) -> None:
    """One bound kernel, with inputs of its own in every arena, gives each the same bits as alone."""
    rng = np.random.default_rng(9)
    kernel, w = found(variant, Conv), normal(rng, 20, 32, 3, 3)
    op, inputs = ChannelsLast(Conv(pads=(1, 1, 1, 1))), [normal(rng, 1, 30, 30, 32) for _ in range(4)]
    with using_threads(2):
        placed = [Placed(kernel, op, [x, w], (1, 30, 30, 20), split=split) for x in inputs]
    alone = [one.run() for one in placed]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for found_now, before in zip(pool.map(Placed.run, placed), alone, strict=True):
                np.testing.assert_array_equal(found_now, before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_is_that_of_the_plan(variant: str) -> None:
    rng = np.random.default_rng(10)
    x, w, b = normal(rng, 1, 40, 40, 32), normal(rng, 32, 32, 3, 3), normal(rng, 32)
    op = ChannelsLast(ConvAct(Conv(pads=(1, 1, 1, 1)), Relu()))
    placed = Placed(found(variant, ConvAct), op, [x, w, b], (1, 40, 40, 32), constants=[None, w, b])
    placed.call()
    tracemalloc.start()
    placed.call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 8192 * 4 + 4096, "more than NumPy's own buffers for the operands of one strided call"


@pytest.mark.parametrize("variant", VARIANTS)
def test_called_without_binding(variant: str) -> None:
    rng = np.random.default_rng(11)
    x, w = normal(rng, 1, 5, 6, 16), normal(rng, 2, 16, 3, 3)
    kernel, op = found(variant, Conv), ChannelsLast(Conv(pads=(1, 1, 1, 1)))
    assert kernel.workspace is not None
    chosen, out = kernel.settings[0], np.full((1, 5, 6, 2), np.nan, np.float32)
    workspace = np.full(kernel.workspace(op, *types_of([x, w]), **chosen), 255, np.uint8)
    kernel.function(op, x, w, out=out, workspace=workspace, **chosen)
    check(variant, out, convolved(x, w, (1,) * 4), convolved(np.abs(x), np.abs(w), (1,) * 4))


def tensor(*shape: Any, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


X, W = tensor(1, 8, 8, 16), tensor(4, 16, 3, 3)
REFUSED = (
    (Conv(strides=(2, 1)), (X, W), "without stride, dilation or groups"),
    (Conv(dilations=(1, 2)), (X, W), "without stride, dilation or groups"),
    (Conv(group=2), (tensor(1, 8, 8, 32), W), "without stride, dilation or groups"),
    (Conv(), (X, tensor(4, 16, 3, 5)), "needs a 3x3 kernel"),
    (Conv(), (tensor(1, 8, 16), tensor(4, 16, 3)), "needs a 3x3 kernel"),
    (Conv(), (tensor(1, 8, 8, 15), tensor(4, 15, 3, 3)), "needs 16 channels, or rounding shows: 15"),
    (Conv(), (tensor(symbol("n"), 8, 8, 16), W), "known in numbers"),
    (Conv(), (tensor(1, 8, 8, 16, dtype="float64"), tensor(4, 16, 3, 3, dtype="float64")), "does not take float64"),
    (ConvAct(Conv(), Gelu()), (X, W), "no form of Gelu"),
    (ConvAdd(Conv()), (X, W, tensor(1, 6, 6, 1)), "residual of the output's shape only"),
)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("inner", "types", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_refused(variant: str, inner: Op, types: Sequence[TensorType], reason: str) -> None:
    rank = types[0].rank
    assert rank is not None
    against = found(variant, type(inner)).reason_against(ChannelsLast(inner, rank), *types)
    assert against is not None
    assert reason in against


@pytest.mark.parametrize(
    ("spatial", "channels", "maps", "best"),
    [
        (224, 64, 64, "winograd4"),
        (56, 256, 256, "winograd4"),
        (28, 512, 512, "winograd4"),
        (7, 512, 512, "im2col"),
        (3, 16, 16, "im2col"),
    ],
)
def test_estimates_choose(spatial: int, channels: int, maps: int, best: str) -> None:
    """Wide layers of many positions gain; reading 36 matrices for a few tiles does not pay."""
    op = ChannelsLast(ConvAct(Conv(pads=(1, 1, 1, 1)), Relu()))
    types = tensor(1, spatial, spatial, channels), tensor(maps, channels, 3, 3), tensor(maps)
    others = [k for k in last_convolution.KERNELS if k.wraps is ConvAct and k.reason_against(op, *types) is None]
    kernels = [*(found(variant, ConvAct) for variant in VARIANTS), *others]
    with using_threads(2):
        seconds = {
            kernel.variant: min(kernel.estimate(op, *types, **chosen) for chosen in kernel.settings)
            for kernel in kernels
            if kernel.estimate is not None
        }
    assert min(seconds, key=seconds.__getitem__) == best
