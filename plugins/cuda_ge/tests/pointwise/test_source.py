"""What generated source looks like, what it refuses, and that CUDA's compilers take it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aicore.ir import Builder, Op, TensorType, symbol
from aicore.ops.activation import Clip, Gelu, Relu
from aicore.ops.arithmetic import Add, Mul, Pow
from aicore.ops.cast import Cast, CastLike
from aicore.ops.elementwise import Sin
from aicore.ops.fused_pointwise import Region
from aicore.ops.logic import Equal, Where
from aicore.ops.softmax import Softmax
from aicore_cuda_ge.codegen.chain import chain_of, reason_against
from aicore_cuda_ge.codegen.elements import float_literal, literal
from aicore_cuda_ge.codegen.indexing import Space, collapse
from aicore_cuda_ge.codegen.source import Source, prelude, source_of


def tensor(dtype: str, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


def source(op: Op, *types: TensorType | None) -> Source:
    return source_of(chain_of(op, types))


@pytest.mark.parametrize(
    ("shape", "operands", "want"),
    [
        ((2, 3, 4), [(2, 3, 4), (2, 3, 4)], Space((24,), ((1,), (1,)))),
        ((2, 3, 4), [(2, 3, 4), ()], Space((24,), ((1,), (0,)))),
        ((2, 3, 4, 5), [(2, 3, 4, 5), (3, 1, 1)], Space((2, 3, 20), ((60, 20, 1), (0, 1, 0)))),
        ((2, 3, 4), [(4,), (2, 3, 4)], Space((6, 4), ((0, 1), (4, 1)))),
        ((3, 4), [(3, 1), (1, 4)], Space((3, 4), ((1, 0), (0, 1)))),
        ((1, 1), [(1, 1), ()], Space((1,), ((0,), (0,)))),
        ((1, 5, 1), [(5, 1)], Space((5,), ((1,),))),
    ],
)
def test_dims_that_broadcast_alike_are_merged(
    shape: tuple[int, ...], operands: list[tuple[int, ...]], want: Space
) -> None:
    assert collapse(shape, operands) == want


def test_one_source_serves_all_sizes_that_do_not_broadcast() -> None:
    a, b = (source(Add(), tensor("float32", *s), tensor("float32", *s)) for s in ((7, 9), (3, 5, 2)))
    assert a.text == b.text
    assert (a.count, b.count) == (63, 30)


def test_sizes_that_broadcast_stand_in_the_source_but_for_the_outermost() -> None:
    def text(*shape: int) -> str:
        return source(Add(), tensor("float32", *shape), tensor("float32", shape[1], 1, 1)).text

    assert "e / 64u % 3u" in text(2, 3, 8, 8)
    assert text(2, 3, 8, 8) == text(5, 3, 8, 8)
    assert text(2, 3, 8, 8) != text(2, 4, 8, 8)


def test_accesses_are_of_16_bytes_where_rows_allow() -> None:
    assert source(Relu(), tensor("float32", 1001)).lanes == 4
    assert source(Relu(), tensor("float16", 1001)).lanes == 8
    assert source(Relu(), tensor("float64", 1001)).lanes == 2
    assert source(Equal(), tensor("float32", 8), tensor("float32", 8)).lanes == 4
    assert source(Add(), tensor("float16", 3, 12), tensor("float16", 3, 1)).lanes == 4
    assert "load(x1[n]" not in source(Add(), tensor("float32", 3, 7), tensor("float32", 3, 1)).text


def test_large_operands_are_counted_in_64_bits() -> None:
    small, large = (source(Relu(), tensor("int8", n)) for n in (2**31 - 1, 2**31))
    assert "typedef u32 Index" in small.text
    assert "typedef u64 Index" in large.text
    assert large.blocks * 256 * large.lanes * large.vectors >= 2**31


def test_functions_of_many_instructions_take_one_vector_a_thread() -> None:
    assert source(Relu(), tensor("float32", 2**24)).vectors == 2
    assert source(Sin(), tensor("float32", 2**24)).vectors == 1
    assert source(Relu(), tensor("float32", 2**12)).vectors == 1


def test_absent_and_unread_operands_keep_their_place() -> None:
    clip = source(Clip(), tensor("float32", 5), None, tensor("float32"))
    assert "(const f32 *p0, const void *p1, const f32 *p2, f32 *q0, i64 count)" in clip.text
    assert "(const f32 *p0, const void *p1, " in source(CastLike(), tensor("float32", 5), tensor("int8", 1)).text


def test_narrow_floats_are_rounded_after_each_op() -> None:
    builder = Builder()
    x = builder.input("x", "float16", (8,))
    y = builder.apply(Mul(), builder.apply(Add(), x, x), x)
    text = source(Region(builder.graph([x], {"y": y})), tensor("float16", 8)).text
    assert "const f16 v0 = to_f16(add(wide(x0), wide(x0)));" in text
    assert "const f16 v1 = to_f16(mul(wide(v0), wide(x0)));" in text


def test_literals_are_exact() -> None:
    assert float_literal(0.1, "f32") == f"{float(np.float32(0.1))!r}f"
    assert float_literal(0.1, "f64") == "0.1"
    assert float_literal(1e39, "f32") == "f32(infinity())"
    assert float_literal(-np.inf, "f64") == "f64(-infinity())"
    assert float_literal(np.nan, "f32") == "f32(not_a_number())"
    assert literal(0.1, "float16") == f"{float(np.float16(0.1))!r}f"
    assert literal(-(2**63), "int64") == "(-9223372036854775807ll - 1)"
    assert literal(-(2**31), "int32") == "i32(-2147483647 - 1)"
    assert literal(2**64 - 1, "uint64") == "18446744073709551615ull"
    assert literal(True, "bool") == "true"


def test_refusals() -> None:
    x = tensor("float32", 4)
    assert "depends on data" in str(reason_against(Relu(), [TensorType("float32", (symbol("n"),))]))
    assert "depends on data" in str(reason_against(Relu(), [TensorType("float32", None)]))
    assert "string" in str(reason_against(Equal(), [tensor("string", 2), tensor("string", 2)]))
    assert "string" in str(reason_against(Cast("string"), [x]))
    assert "string" in str(reason_against(CastLike(), [x, tensor("string", 2)]))
    assert "float8_e5m2" in str(reason_against(Cast("float8_e5m2"), [x]))
    assert "Softmax" in str(reason_against(Softmax(), [x]))
    assert "bound 300" in str(reason_against(Clip(0, 300), [tensor("int8", 4)]))
    flag = tensor("bool", 4)
    assert reason_against(Where(), [flag, tensor("complex64", 4), tensor("complex64", 4)]) is None
    assert reason_against(Clip(0, 3), [x]) is None


def test_refusals_of_regions() -> None:
    builder = Builder()
    x = builder.input("x", "float32", (2, 3))
    held = builder.apply(Add(), x, builder.constant(np.ones(3, np.float32)))
    soft = builder.apply(Softmax(), x)
    small = builder.apply(Relu(), builder.scalar(1.0, x))
    power = builder.apply(Pow(), x, builder.scalar(2.0, x))
    types = [tensor("float32", 2, 3)]

    def reason(**outputs: object) -> str | None:
        return reason_against(Region(builder.graph([x], outputs)), types)  # type: ignore[arg-type]

    assert "Softmax in it is not pointwise" in str(reason(y=soft))
    builder.nodes = [node for node in builder.nodes if node.outputs[0] is not soft]
    assert "several numbers" in str(reason(y=held))
    builder.nodes = [node for node in builder.nodes if node.outputs[0] is not held]
    assert "different shapes" in str(reason(y=power, z=small))
    assert reason(y=power) is None


def test_nvcc_takes_the_source(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on this machine")
    half, wide = tensor("float16", 2, 3, 8), tensor("float64", 2, 3, 7)
    chains = [
        chain_of(Gelu(), [half]),
        chain_of(Add(), [half, tensor("float16", 3, 1)]),
        chain_of(Pow(), [wide, tensor("int64", 7)]),
        chain_of(Cast("float16"), [wide]),
        chain_of(Cast("bfloat16"), [tensor("uint64", 5)]),
        chain_of(Where(), [tensor("bool", 7), tensor("complex64", 3, 7), tensor("complex64")]),
    ]
    texts = [source_of(chain, f"kernel_{i}").text for i, chain in enumerate(chains)]
    path = tmp_path / "kernels.cu"
    path.write_text("\n".join([prelude(), *texts]), encoding="utf-8")
    command = [
        nvcc,
        "-std=c++17",
        "-arch=sm_75",
        "-fmad=false",
        "-cubin",
        "-o",
        str(tmp_path / "kernels.cubin"),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
