"""Resize as the GPU computes it, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import KernelTable
from aicore.ops.resize import COORDINATES, NEAREST_MODES, Resize
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _tables, resize

Array = np.ndarray[Any, Any]
(KERNEL,) = resize.KERNELS


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("kernels/resize.cu")


@pytest.fixture(autouse=True)
def _on_host(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(_tables, "compiled", recorded)
    monkeypatch.setattr(_tables, "uploaded", np.ascontiguousarray)


def compare(host: Any, op: Resize, x: Array, rtol: float = 1e-5, note: str = "") -> None:
    assert KERNEL.reason_against(op, type_of(x)) is None, note
    (found,) = host.run(KERNEL, op, [x])
    wide = x if x.dtype.kind in "biu" else x.astype(np.float64)
    (wanted,) = ReferenceEvaluator(KernelTable(all_kernels()))(op, wide)
    assert found.shape == wanted.shape
    if op.mode == "nearest":
        np.testing.assert_array_equal(found, wanted.astype(x.dtype), err_msg=note)
    else:
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=rtol, atol=rtol, err_msg=note)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_samples(dtype: str, host: Any) -> None:
    """Every mode, way to count coordinates, policy and rank."""
    compared = 0
    for sample in Resize.samples(np.random.default_rng(3)):
        if len(sample.inputs) > 1 or sample.inputs[0] is None or sample.inputs[0].dtype != np.float32:
            continue
        rtol = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 1e-12}.get(dtype, 2e-6)
        compare(host, sample.op, sample.inputs[0].astype(numpy_dtype(dtype)), rtol, sample.note)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int32", "int64", "float16", "float64"])
def test_nearest_moves_any_type(dtype: str, host: Any) -> None:
    x = np.arange(2 * 5 * 7).reshape(2, 5, 7).astype(dtype)
    for mode in NEAREST_MODES:
        for where in COORDINATES:
            roi = (-0.3, 0.1, 1.2, 0.8) if where == "tf_crop_and_resize" else None
            op = Resize(
                axes=(1, 2),
                coordinate_transformation_mode=where,
                extrapolation_value=1.0,
                nearest_mode=mode,
                roi=roi,
                scales=(1.3, 0.7),
            )
            compare(host, op, x, note=f"{mode}, {where}")


@pytest.mark.parametrize("shape", [(3, 50, 61, 5), (1, 3, 1, 1), (2, 0, 4, 4)], ids=str)
def test_images_with_channels_last(shape: tuple[int, ...], host: Any) -> None:
    """More results than a block has threads; one pixel; none."""
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    compare(host, Resize(antialias=1, axes=(1, 2), mode="linear", scales=(1.0, 0.4)), x)
    sizes = (0, 9) if not shape[1] else (23, 99)
    compare(host, Resize(axes=(1, 2), exclude_outside=1, mode="cubic", sizes=sizes), x)


def test_what_keeps_its_size_is_copied(host: Any) -> None:
    """Neighbours that weigh nothing are not read, so that NaN stays where it is."""
    x = np.ones((2, 3, 4), np.float32)
    x[0, 1] = np.nan
    (found,) = host.run(KERNEL, Resize(mode="linear", scales=(1.0, 1.0, 1.0)), [x])
    np.testing.assert_array_equal(found, x)


REFUSALS: dict[str, tuple[Resize, list[TensorType | None], str]] = {
    "sizes of the run": (
        Resize(),
        [TensorType("float32", (4, 4)), None, None, TensorType("int64", (2,))],
        "known before",
    ),
    "open sizes": (Resize(scales=(2.0, 2.0)), [TensorType("float32", None)], "known in numbers"),
    "mixed integers": (Resize(mode="linear", scales=(1.5,)), [TensorType("int32", (4,))], "does not mix"),
    "text": (Resize(scales=(1.5,)), [TensorType("string", (4,))], "string"),
    "huge": (Resize(scales=(65536.0, 65536.0)), [TensorType("uint8", (2, 2))], "2**31"),
    "many axes": (Resize(scales=(1.5,) * 4), [TensorType("float32", (2,) * 4)], "changes 3 axes, here 4"),
}


@pytest.mark.parametrize("note", REFUSALS)
def test_refusals(note: str) -> None:
    op, types, reason = REFUSALS[note]
    assert reason in str(KERNEL.reason_against(op, *types))
