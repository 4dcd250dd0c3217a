"""What plans get: launches of generated kernels."""

from __future__ import annotations

import struct

import pytest

from aicore.ir import TensorType
from aicore.ops import CORE
from aicore.ops.activation import Relu
from aicore.ops.arithmetic import Add
from aicore.ops.base import Pointwise
from aicore.ops.bits import BitCast
from aicore.ops.cast import Cast, CastLike
from aicore.ops.fused_pointwise import Region
from aicore_cuda_ge.codegen.compiler import Function
from aicore_cuda_ge.kernels import pointwise as module


@pytest.fixture
def pointwise(monkeypatch: pytest.MonkeyPatch) -> object:
    """The module of kernels, with a loader that needs no GPU."""
    monkeypatch.setattr(module, "load", lambda text, name: Function(1234, name))
    return module


def test_every_pointwise_op_has_a_kernel(pointwise: object) -> None:
    ops = {op for op in CORE.values() if issubclass(op, Pointwise)} | {Cast, CastLike, BitCast, Region}
    assert {kernel.op for kernel in pointwise.KERNELS} == ops
    assert all(kernel.device == "cuda" and kernel.bind is not None for kernel in pointwise.KERNELS)


def test_a_launch_covers_all_elements(pointwise: object) -> None:
    shape = TensorType("float32", (1000, 1000))
    (launch,) = pointwise.bind_pointwise(Add(), [shape, shape], [None, None])
    assert launch.function == 1234
    assert launch.owner == "aicore_add"
    assert launch.params == struct.pack("<q", 10**6)
    assert launch.block == (256, 1, 1)
    assert launch.grid == (-(-(10**6) // 1024), 1, 1)


def test_nothing_is_launched_for_no_elements(pointwise: object) -> None:
    assert pointwise.bind_pointwise(Relu(), [TensorType("float32", (3, 0))], [None]) == ()


def test_the_estimate_grows_with_the_bytes(pointwise: object) -> None:
    small, large = (pointwise.seconds(Relu(), TensorType("float32", (n,))) for n in (16, 2**28))
    assert 0 < small < 2e-6
    assert large == pytest.approx(2**31 / 3.4e12, rel=0.01)


def test_kernels_run_from_plans_only(pointwise: object) -> None:
    with pytest.raises(NotImplementedError, match="Relu"):
        pointwise.run_from_plan(Relu(), None, out=None)
