"""Fast movement, indexing and Resize give the reference's numbers, in the planned memory alone."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.errors import ExecutionError
from aicore.ir import Buffer, Builder, Op, TensorType, as_tuple, symbol
from aicore.kernels import Kernel
from aicore.ops.creation import ConstantOfShape
from aicore.ops.gather import Gather
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.rearrange import DepthToSpace
from aicore.ops.resize import Resize
from aicore.ops.shape import Reshape
from aicore.ops.slicing import PAD_MODES, Pad, Slice
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _parallel, indexing, movement, resize, scatter

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

KERNELS = {
    f"{k.op.__name__}-{k.variant}": k for module in (movement, indexing, resize, scatter) for k in module.KERNELS
}
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def compare(got: Any, wanted: Any, tolerance: float = 0.0) -> None:
    assert not isinstance(got, str), got
    for found, expected in zip(got, wanted, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Samples are small; with several threads they are shared all the same."""
    monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
    with using_threads(request.param):
        yield


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("threads")
def test_samples(name: str, dtype: str, run_kernel: Run, reference: Run) -> None:
    kernel, compared = KERNELS[name], 0
    exact = kernel.variant != "separable"
    for sample in kernel.op.samples(np.random.default_rng(1)):
        arrays = [a.astype(dtype) if a is not None and a.dtype == np.float32 else a for a in sample.inputs]
        got = run_kernel(kernel, sample.op, arrays)
        if isinstance(got, str):
            continue
        compared += 1
        compare(got, reference(sample.op, arrays), 0.0 if exact else TOLERANCE[dtype])
    assert compared >= 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex64"])
@pytest.mark.parametrize(
    "op",
    [Transpose((1, 2, 0)), Slice((1,), (-1,), (1,), (2,)), Pad("edge", (1, 0, 0, 0, 0, 2)), Tile((1, 2, 2)), Concat(1)],
)
def test_any_element_type(op: Op, dtype: str, run_kernel: Run, reference: Run) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    kernel = next(k for k in KERNELS.values() if k.op is type(op))
    compare(run_kernel(kernel, op, [x]), reference(op, [x]))


dims = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), shape=dims)
def test_slices(data: st.DataObject, shape: list[int], run_kernel: Run) -> None:
    """Against NumPy, wherever it and ONNX agree: with a negative step, a start before the first element is clamped."""
    bounds, steps = st.integers(-6, 6), st.sampled_from([-2, -1, 1, 2, 3])
    starts = [data.draw(bounds) for _ in shape]
    ends, by = [data.draw(bounds) for _ in shape], [data.draw(steps) for _ in shape]
    starts = [max(s, -d) if step < 0 else s for s, d, step in zip(starts, shape, by, strict=True)]
    x = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    op = Slice(tuple(starts), tuple(ends), None, tuple(by))
    want = x[tuple(slice(s, e, step) for s, e, step in zip(starts, ends, by, strict=True))]
    compare(run_kernel(KERNELS["Slice-strided"], op, [x]), [want])


@settings(deadline=None, max_examples=100)
@given(data=st.data(), mode=st.sampled_from(PAD_MODES), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_pads(data: st.DataObject, mode: str, shape: list[int], run_kernel: Run, reference: Run) -> None:
    begins = [data.draw(st.integers(1 - d, 5)) for d in shape]
    ends = [data.draw(st.integers(1 - d - min(b, 0), 5)) for d, b in zip(shape, begins, strict=True)]
    x = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).reshape(shape)
    op = Pad(mode, (*begins, *ends), 9)
    compare(run_kernel(KERNELS["Pad-strided"], op, [x]), reference(op, [x]))


@settings(deadline=None, max_examples=50)
@given(data=st.data(), shape=dims)
def test_transposing_there_and_back(data: st.DataObject, shape: list[int], run_kernel: Run) -> None:
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    (there,) = run_kernel(KERNELS["Transpose-strided"], Transpose(perm), [x])
    back = Transpose(tuple(int(i) for i in np.argsort(perm)))
    compare(run_kernel(KERNELS["Transpose-strided"], back, [there]), [x])


@settings(deadline=None, max_examples=80)
@given(
    new=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    old=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    antialias=st.integers(0, 1),
)
def test_resizing(new: Any, old: Any, mode: str, antialias: int, run_kernel: Run, reference: Run) -> None:
    x = np.random.default_rng(3).normal(size=(2, *old, 2))
    op = Resize(antialias, axes=(1, 2), mode=mode, sizes=new)
    kernel = KERNELS["Resize-nearest" if mode == "nearest" else "Resize-separable"]
    compare(run_kernel(kernel, op, [x]), reference(op, [x]), 1e-12)


def test_resizing_in_blocks(run_kernel: Run, reference: Run) -> None:
    """So many rows that they do not fit into one block, and are no multiple of it."""
    x = np.random.default_rng(3).normal(size=(1, 37, 40, 50)).astype(np.float32)
    op = Resize(mode="linear", scales=(1.0, 1.0, 2.0, 1.5))
    (step, _) = resize.passes(op, x.shape)
    assert step.rows(4) < step.outer
    compare(run_kernel(KERNELS["Resize-separable"], op, [x]), reference(op, [x]), 2e-6)


def test_constant_indices_are_checked_once() -> None:
    kernel, op = KERNELS["Gather-take"], Gather(1)
    types = [TensorType("float32", (2, 3)), TensorType("int32", (2,))]
    assert kernel.bind is not None
    call = kernel.bind(op, types, [None, np.array([-1, 0], np.int32)])
    out = np.empty((2, 2), np.float32)
    call(np.arange(6, dtype=np.float32).reshape(2, 3), None, out=out, workspace=np.empty(0, np.uint8))
    np.testing.assert_array_equal(out, [[2, 0], [5, 3]])
    with pytest.raises(ExecutionError, match=r"indices\[0\] is 3, out of range for axis 1"):
        kernel.bind(op, types, [None, np.array([3, 0], np.int32)])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_is_an_error_of_the_run(dtype: str, index: int, run_kernel: Run) -> None:
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(ExecutionError, match=rf"indices\[1\] is {index}"):
        run_kernel(KERNELS["Gather-take"], Gather(), [x, np.array([0, index], dtype)])


def test_scatter_updates_a_cache_where_it_lies() -> None:
    for name in ("ScatterElements-inplace", "ScatterND-inplace", "TensorScatter-inplace"):
        assert KERNELS[name].inplace
        assert KERNELS[name].op.inplace == ((0, 0),)
    cache = np.zeros((2, 1, 4, 2), np.float32)
    kernel = KERNELS["TensorScatter-inplace"]
    kernel.function(kernel.op(), cache, np.ones((2, 1, 1, 2), np.float32), np.array([3, 1]), out=cache)
    assert cache.sum() == 4
    assert cache[0, 0, 3].all()
    assert cache[1, 0, 1].all()


LARGE: list[tuple[str, Op, list[tuple[int, ...]]]] = [
    ("Transpose-strided", Transpose((0, 2, 3, 1)), [(1, 64, 56, 56)]),
    ("Concat-strided", Concat(1), [(1, 64, 56, 56), (1, 32, 56, 56)]),
    ("Split-strided", Split(1, 2), [(1, 64, 56, 56)]),
    ("Expand-strided", Expand((8, 64, 400)), [(64, 1)]),
    ("Tile-strided", Tile((1, 3, 2)), [(8, 64, 100)]),
    ("DepthToSpace-strided", DepthToSpace(2), [(1, 64, 56, 56)]),
    ("Reshape-strided", Reshape((-1,)), [(1, 64, 56, 56)]),
    ("Slice-strided", Slice((0, 1), (64, 50), (1, 2), (2, 3)), [(1, 64, 56, 56)]),
    ("Pad-strided", Pad("constant", (0, 0, 1, 1, 0, 0, 1, 1)), [(1, 64, 56, 56)]),
    ("Pad-strided", Pad("reflect", (0, 0, 1, 1, 0, 0, 1, 1)), [(1, 64, 56, 56)]),
    ("Gather-take", Gather(1), [(1, 64, 3136), (64,)]),
    ("Resize-nearest", Resize(scales=(1.0, 1.0, 2.0, 2.0)), [(1, 32, 40, 40)]),
    ("Resize-separable", Resize(mode="linear", scales=(1.0, 1.0, 2.0, 2.0)), [(1, 32, 40, 40)]),
    ("Resize-separable", Resize(mode="cubic", scales=(1.0, 1.0, 1.5, 0.7)), [(1, 32, 40, 40)]),
]


@pytest.mark.parametrize(("name", "op", "shapes"), LARGE)
def test_temporaries_come_from_the_workspace(name: str, op: Op, shapes: list[tuple[int, ...]]) -> None:
    kernel, builder = KERNELS[name], Builder()
    arrays = [np.zeros(s, np.int32 if i and kernel.op is Gather else np.float32) for i, s in enumerate(shapes)]
    values = [builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
    outputs = tuple(np.empty(v.type.static_shape, np.float32) for v in as_tuple(builder.apply(op, *values)))
    op, types = builder.nodes[0].op, [v.type for v in values]
    options: dict[str, Any] = {"out": outputs[0] if len(outputs) == 1 else outputs}
    if kernel.workspace is not None:
        options["workspace"] = np.empty(kernel.workspace(op, *types), np.uint8)
    call = _bound(kernel, op, types)
    call(*arrays, **options)
    tracemalloc.start()
    call(*arrays, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 10, "NumPy's iterators may take a few buffers of 8192 elements"


def _bound(kernel: Kernel, op: Op, types: list[TensorType]) -> Callable[..., Any]:
    if kernel.bind is not None:
        return kernel.bind(op, types, [None] * len(types))
    return lambda *arrays, **options: kernel.function(op, *arrays, **options)


def test_reasons() -> None:
    moving, image = TensorType("float32", (symbol("N"), 4)), TensorType("float32", (1, 1, 4, 4))
    vector = TensorType("int64", (2,))
    data = "depends on data"
    assert data in str(KERNELS["Transpose-strided"].reason_against(Transpose((1, 0)), moving))
    assert data in str(KERNELS["Reshape-strided"].reason_against(Reshape(), image, vector))
    assert data in str(KERNELS["ConstantOfShape-fill"].reason_against(ConstantOfShape(), vector))
    words = ConstantOfShape(Buffer(np.array(["a"], object)), (2,))
    assert "strings" in str(KERNELS["ConstantOfShape-fill"].reason_against(words))
    assert "string" in str(KERNELS["Concat-strided"].reason_against(Concat(0), TensorType("string", (2,))))
    linear, nearest = Resize(mode="linear", scales=(1.0,) * 4), Resize(scales=(1.0,) * 4)
    assert "linear" in str(KERNELS["Resize-nearest"].reason_against(linear, image))
    assert "nearest" in str(KERNELS["Resize-separable"].reason_against(nearest, image))
    assert "does not take float16" in str(
        KERNELS["Resize-separable"].reason_against(linear, TensorType("float16", (1, 1, 4, 4)))
    )
    crop = Resize(coordinate_transformation_mode="tf_crop_and_resize", sizes=(1, 1, 2, 2))
    assert "roi" in str(KERNELS["Resize-nearest"].reason_against(crop, image, TensorType("float32", (8,))))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(40, 3, 50), (2, 70, 90, 5), (1, 600, 4), (3, 1, 17, 2), (1, 1), (0, 4, 2)])
def test_transposes_of_any_order(shape: tuple[int, ...], run_kernel: Run) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for perm in itertools.permutations(range(len(shape))):
        (got,) = run_kernel(KERNELS["Transpose-strided"], Transpose(perm), [x])
        np.testing.assert_array_equal(got, x.transpose(perm))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_pieces_of_unequal_sizes(axis: int, run_kernel: Run) -> None:
    rng = np.random.default_rng(0)
    sizes = (1, 40, 0, 3)
    xs = [rng.standard_normal(tuple(n if i == axis else 20 for i in range(3))) for n in sizes]
    (joined,) = run_kernel(KERNELS["Concat-strided"], Concat(axis), xs)
    np.testing.assert_array_equal(joined, np.concatenate(xs, axis))
    for piece, x in zip(run_kernel(KERNELS["Split-strided"], Split(axis, None, sizes), [joined]), xs, strict=True):
        np.testing.assert_array_equal(piece, x)
