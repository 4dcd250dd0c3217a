"""Products on the CPU by the sources of the CUDA kernels: the same bits as the CPU kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, Value
from aicore.ops.activation import Gelu
from aicore.ops.quantized_linear import MatMulInteger
from aicore.runtime import type_of
from aicore_int8_quant.cuda import launch, products
from aicore_int8_quant.ops.linear import Int8MatMul
from plugins.int8_quant.tests.cuda.cases import Case, codes, exact, product
from plugins.int8_quant.tests.cuda.cases import products as random_products

DP4A = [kernel for kernel in products.KERNELS if kernel.variant == "dp4a"]
TILES = tuple(DP4A[0].tune["tile"])


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("int8_gemm_dp4a", "pack", "epilogue_kernels")


@pytest.fixture
def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose blocks add up sums in memory."""
    monkeypatch.setattr(products, "machine", lambda: replace(launch.Machine(), capability=80))


def check(host: Any, case: Case, **settings: Any) -> None:
    op, operands = case
    kernel = next(k for k in DP4A if k.op is type(op))
    assert kernel.reason_against(op, *(None if a is None else type_of(a) for a in operands)) is None
    (found,) = host.run(kernel, op, operands, **settings)
    np.testing.assert_array_equal(found, exact(op, operands))


@pytest.mark.parametrize("tile", TILES)
def test_random(tile: str, host: Any) -> None:
    for case in random_products(12, seed=TILES.index(tile)):
        check(host, case, tile=tile, split=1)


@pytest.mark.parametrize("split", [2, 8])
def test_blocks_that_share_a_tile(split: int, host: Any, no_clusters: None) -> None:
    for case in random_products(6, seed=50 + split):
        check(host, case, tile="64x64x2", split=split)


def test_as_many_terms_as_int32_holds(host: Any) -> None:
    """Every product is the largest that there is."""
    x, w = np.full((2, 131_071), -128, np.int8), np.full((131_071, 3), -128, np.int8)
    check(host, (MatMulInteger(), (x, w, None, None)), tile="16x64x4", split=1)


def test_sums_beyond_float32(host: Any) -> None:
    """Beyond 2^24 the conversion rounds as on the CPU."""
    rng = np.random.default_rng(3)
    x, w = codes(rng, (9, 2000), "uint8"), np.full((2000, 5), 127, np.int8)
    scale = np.array(1, np.float32)
    check(host, (Int8MatMul(), (x, w, scale)), tile="64x64x2", split=1)


def test_halves_and_saturation(host: Any) -> None:
    """Every half from below to above the range of a result, with an odd zero point."""
    x = np.arange(-128, 128, dtype=np.int8)[:, None].repeat(3, 1)
    w = np.array([[1, 5, 2], [0, 0, 1], [0, 0, 0]], np.int8)
    scale = np.array(0.5, np.float32)
    for dtype in ("int8", "uint8"):
        operands = (x, w, scale, *(None,) * 6, np.array(1, np.float32), np.array(7, dtype))
        check(host, (Int8MatMul(), operands), tile="64x64x2", split=1)


def test_a_scale_that_is_no_number(host: Any) -> None:
    x, w = np.ones((4, 4), np.int8), np.eye(4, dtype=np.int8)
    scale = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    check(
        host,
        (Int8MatMul(), (x, w, scale, *(None,) * 6, np.array(1, np.float32), np.array(3, np.int8))),
        tile="64x64x2",
        split=1,
    )


@pytest.mark.parametrize(
    ("op", "shapes", "reason"),
    [
        (MatMulInteger(), ((3, 4), (4, 2), (3,), None), "takes one x point"),
        (MatMulInteger(), ((2, 3, 4), (5, 1, 4, 2), None, None), "as many matrices as x has"),
        (MatMulInteger(), ((3, 0), (0, 2), None, None), "adds up 1 to"),
        (Int8MatMul(Gelu()), ((3, 4), (4, 2)), "has no Gelu"),
    ],
    ids=["rows", "batches", "nothing", "activation"],
)
def test_refusals(op: Any, shapes: Any, reason: str) -> None:
    kernel = next(k for k in DP4A if k.op is type(op))
    types = [None if s is None else TensorType("int8", s) for s in shapes]
    if isinstance(op, Int8MatMul):
        types.append(TensorType("float32", ()))
    assert reason in str(kernel.reason_against(op, *types))


def test_open_sizes_are_refused() -> None:
    types = TensorType("int8", None), TensorType("int8", (4, 2))
    assert "known sizes" in str(DP4A[0].reason_against(MatMulInteger(), *types))


def test_addends_of_other_shapes_are_refused() -> None:
    op, operands = Int8MatMul(), [TensorType("int8", (3, 4)), TensorType("int8", (4, 2)), TensorType("float32", ())]
    types = [*operands, None, None, None, TensorType("float32", (3, 1))]
    assert op.infer(*(None if t is None else Value("x", t) for t in types)) == TensorType("float32", (3, 2))
    kernel = next(k for k in DP4A if k.op is Int8MatMul)
    assert "adds a tensor of the shape" in str(kernel.reason_against(op, *types))


@pytest.mark.parametrize("seed", range(8))
def test_weights_are_packed_as_by_the_kernel(seed: int, host: Any) -> None:
    """NumPy's packing, which is what constants get, against the kernel's."""
    op, operands = product(np.random.default_rng(seed), 3, 37 + seed, 21)
    types = [None if a is None else type_of(a) for a in operands]
    at, made = products.operands_of(op, types), products.product_of(op, types).weights
    points = None if at.w_point < 0 else operands[at.w_point]
    packed, sums, _ = made.pack(np, operands[at.w], points)
    room = np.zeros(made.nbytes + made.sum_bytes, np.uint8)
    host.launch(made.launch(at.w, at.w_point, len(operands), 0), [*operands, room])
    np.testing.assert_array_equal(room[: packed.size].view(np.int8), packed.reshape(-1))
    np.testing.assert_array_equal(room[made.nbytes : made.nbytes + sums.nbytes].view(np.int32), sums.reshape(-1))
