"""MatMulInteger, QLinearMatMul and Int8MatMul, by the kernels of csrc/int8_gemm_*.

dp4a: any GPU. mma: tensor cores, from sm_80 on. warpgroup: tensor cores of sm_90, the same tiles. wgmma: fed by its
copy engine.
Rows of x whose length is no multiple of 16 are copied first; a weight that never changes is packed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aicore.ir import Op, TensorType, Value, as_tuple
from aicore.kernels import Kernel, kernel
from aicore.ops.activation import Clip, Relu
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import EIGHT_BITS, MOST_TERMS, MatMulInteger, QLinearMatMul
from aicore_int8_quant.cuda import tile_times, tiles
from aicore_int8_quant.cuda.launch import Launch, launch, machine
from aicore_int8_quant.cuda.packing import CHUNK, Ready, Weights, make_ready, padded
from aicore_int8_quant.cuda.problem import (
    NONE,
    Places,
    Sizes,
    activation_reason,
    dtype_at,
    inner_of,
    operands_of,
    params_of,
    place,
    shape_at,
)
from aicore_int8_quant.cuda.tiles import Tile
from aicore_int8_quant.ops.linear import Int8Conv, Int8Linear, Int8MatMul

Types = Sequence["TensorType | None"]
OPS: tuple[type[Op], ...] = (MatMulInteger, QLinearMatMul, Int8MatMul)
WGMMA_OPS: tuple[type[Op], ...] = (MatMulInteger, Int8MatMul)
"""The zero point of a weight, which QLinearMatMul always has, is known to be 0 only once it is fused."""
LARGEST = 2**31 - 1
_MOST_GROUPS = 65535


@dataclass(frozen=True)
class Product:
    """rows @ columns over terms, `groups` times; full: the addend, if there is one, has the shape of the result."""

    rows: int
    columns: int
    terms: int
    groups: int
    aligned: bool
    unsigned: bool
    weights: Weights
    full: bool

    @property
    def depth(self) -> int:
        return padded(self.terms)

    @property
    def sizes(self) -> Sizes:
        return Sizes(
            *(self.rows, self.columns, self.depth, self.groups),
            a_row=self.depth,
            a_group=self.rows * self.depth,
            b_row=self.weights.row,
            positions=max(self.rows, 1),
            y_image=0,
            y_row=self.columns,
            y_column=1,
            y_group=self.rows * self.columns,
            column_group=0,
            a_unsigned=int(self.unsigned),
        )


def product_of(op: Op, types: Types) -> Product:
    """Of operands that reason_against has nothing against."""
    at = operands_of(op, types)
    x, w = shape_at(types, at.x), shape_at(types, at.w)
    shared = len(w) == 2
    groups = 1 if shared else math.prod(w[:-2])
    rows = math.prod(x[:-1]) if shared else x[-2]
    terms, columns = w[-2:]
    points = types[at.w_point] if at.w_point >= 0 else None
    weights = Weights(
        *(groups, columns, 1, terms, padded(terms)),
        *(terms * columns, 1, 0, columns),
        is_unsigned=dtype_at(types, at.w) == "uint8",
        point_each=points is not None and points.size != 1,
        column_group=0,
    )
    full = at.addend >= 0 and shape_at(types, at.addend) != (columns,)
    unsigned = dtype_at(types, at.x) == "uint8"
    return Product(rows, columns, terms, groups, terms % CHUNK == 0, unsigned, weights, full)


def result_of(op: Op, types: Types) -> TensorType:
    return as_tuple(op.infer(*(None if t is None else Value("x", t) for t in types)))[0]


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What no kernel here takes."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    at = operands_of(op, types)
    x, w = shape_at(types, at.x), shape_at(types, at.w)
    if len(w) < 2 or (len(w) > 2 and x[:-2] != w[:-2]):
        return "takes a matrix of weights, or a batch of as many matrices as x has"
    if reason := parameter_reason(op, types, w[-1], (w[-1],)):
        return reason
    if not 0 < w[-2] <= MOST_TERMS:
        return f"adds up 1 to {MOST_TERMS} products, here {w[-2]}"
    product = product_of(op, types)
    return size_reason(product.sizes)


def size_reason(sizes: Sizes) -> str | None:
    """Offsets have 31 bits in loops, tiles and groups are numbered by the grid."""
    largest = max(sizes.rows * sizes.depth, sizes.columns * sizes.b_row, sizes.rows * sizes.columns)
    if largest > LARGEST or sizes.groups > _MOST_GROUPS:
        return "takes matrices of fewer than 2**31 elements, and at most 65535 of them"
    return None


def parameter_reason(op: Op, types: Types, channels: int, by_channel: tuple[int, ...]) -> str | None:
    """What the epilogue does not take. by_channel: shape of an addend with one number for each channel."""
    at = operands_of(op, types)
    for name in ("x_point", "x_scale", "y_scale", "y_point", "addend_scale", "addend_point"):
        found = types[getattr(at, name)] if getattr(at, name) >= 0 else None
        if found is not None and found.size != 1:
            return f"takes one {name.replace('_', ' ')}, not one for each row"
    for position in (at.w_point, at.scale):
        found = types[position] if position >= 0 else None
        if found is not None and found.size != 1 and found.static_shape != (channels,):
            return "takes one parameter for the weight or one for each channel"
    inner = inner_of(op)
    if isinstance(inner, Int8Linear) and (reason := activation_reason(inner.activation)):
        return reason
    if at.addend < 0 or shape_at(types, at.addend) in (result_of(op, types).static_shape, by_channel):
        return None
    return f"adds a tensor of the shape of the result or {by_channel} only"


@dataclass(frozen=True)
class Rooms:
    """Bytes from which the workspace has packed x, row sums, and sums of several blocks; its size."""

    x: int
    row_sums: int
    partial: int
    size: int


def rooms(sizes: Sizes, weights: Weights, x_bytes: int, partial: bool) -> Rooms:
    """Packed weights come first, should these not be constant."""
    x = weights.nbytes + weights.sum_bytes
    row_sums = x + padded(x_bytes, 64)
    after = row_sums + padded(4 * sizes.groups * sizes.rows, 64)
    size = after + (4 * sizes.groups * sizes.rows * sizes.columns if partial else 0)
    return Rooms(x, row_sums, after, size)


def is_partial(split: int) -> bool:
    """Whether blocks that share a tile add up their sums in memory."""
    return split > 1 and not machine().clusters


def finished(
    kernel_name: str,
    op: Op,
    types: Types,
    sizes: Sizes,
    a: int,
    ready: Ready,
    room: Rooms,
    full: bool,
    tile: int,
    split: int,
    partial: bool,
) -> tuple[Launch, ...]:
    """The launches for packed operands: row sums of a if they are needed, the product, and what sums become."""
    workspace, out = len(types) + 1, result_of(op, types)
    row_sums = place(workspace, room.row_sums) if ready.row_sums else NONE
    sums = place(workspace, room.partial) if partial else NONE
    params = params_of(op, types, out, sizes, Places(a, ready.b, ready.sums, row_sums, sums), full, tile, split)
    calls = [*ready.calls]
    if ready.row_sums:
        calls.append(launch("int8_row_sums", params, ready.extra))
    calls.append(launch(kernel_name, params, ready.extra))
    if partial:
        calls.append(launch("int8_epilogue", params, ready.extra))
    return tuple(calls)


def bind(
    name: str, choices: dict[str, Tile], op: Op, types: Types, constants: Sequence[Any], tile: str, split: int
) -> tuple[Launch, ...]:
    product, partial = product_of(op, types), is_partial(split)
    if not result_of(op, types).size:
        return ()
    calls, a, ready, room = operands(product, op, types, constants, partial)
    made = finished(
        f"int8_gemm_{name}", op, types, product.sizes, a, ready, room, product.full, choices[tile].index, split, partial
    )
    return (*calls, *made)


def operands(
    product: Product, op: Op, types: Types, constants: Sequence[Any], partial: bool
) -> tuple[tuple[Launch, ...], int, Ready, Rooms]:
    """(launch that copies x, place of a, weights, rooms)."""
    at, workspace = operands_of(op, types), len(types) + 1
    points = constants[at.w_point] if at.w_point >= 0 else None
    ready = make_ready(product.weights, constants[at.w], points, at.w_point >= 0, (at.w, at.w_point), workspace)
    room = rooms(product.sizes, product.weights, x_bytes(product), partial)
    if product.aligned:
        return (), at.x, ready, room
    a = place(workspace, room.x)
    return (copy_rows(product, at.x, a),), a, ready, room


def x_bytes(product: Product) -> int:
    """Of the copy of x."""
    return 0 if product.aligned else product.groups * product.rows * product.depth


def copy_rows(product: Product, x: int, to: int) -> Launch:
    """Rows filled up with zeros to whole chunks, as windows of one tap."""
    rows = product.groups * product.rows
    sizes = (1, rows, product.depth, 1, 1, product.terms, product.depth, 1, 1, 1, 1)
    steps = (0, product.terms, product.terms, product.terms, 1)
    return launch("int8_pack_windows", (*sizes, *steps, 1, 1, 1, 1, 0, 0, x, NONE, to))


def workspace(op: Op, *types: TensorType | None, tile: str = "", split: int = 1) -> int:
    product = product_of(op, types)
    return rooms(product.sizes, product.weights, x_bytes(product), is_partial(split)).size


Taken = Callable[[Sizes, Tile, int, str], float]
"""Seconds of a product by a tile, of which so many blocks share the depth, with such an ending."""


def ending_of(op: Op, types: Types, full: bool) -> str:
    """What csrc/codes.cuh calls the usual case, with an addend or without, or another one."""
    at, inner, result = operands_of(op, types), inner_of(op), result_of(op, types)
    activation = inner.activation if isinstance(inner, Int8Linear) else None
    last = isinstance(op, ChannelsLast) or not isinstance(inner, Int8Conv)
    added = dtype_at(types, at.addend)
    clamps = isinstance(activation, Relu | Clip | None) and result.dtype in EIGHT_BITS
    if not clamps or not last or at.w_point >= 0 or (added and not (full and added in EIGHT_BITS)):
        return tiles.OTHERS
    return tiles.ADDED_CODES if added else tiles.CODES


def estimate(
    choices: dict[str, Tile],
    taken: Taken,
    op: Op,
    *types: TensorType | None,
    tile: str,
    split: int = 1,
) -> float:
    """Taking weights for constant, as they are as a rule."""
    product = product_of(op, types)
    copy = tile_times.copy_seconds(x_bytes(product))
    return copy + taken(product.sizes, choices[tile], split, ending_of(op, types, product.full))


def mma_reason(op: Op, *types: TensorType | None) -> str | None:
    if machine().capability < 80:
        return "takes GPUs of compute capability 8.0 and above"
    return reason_against(op, *types)


def warpgroup_reason(op: Op, *types: TensorType | None) -> str | None:
    if machine().capability != 90:
        return "takes GPUs of compute capability 9.0"
    return reason_against(op, *types)


def wgmma_reason(op: Op, *types: TensorType | None) -> str | None:
    """It has no addend, no row sums, and no batch; maps of a copy engine begin at multiples of 16 bytes."""
    if machine().capability != 90:
        return "takes GPUs of compute capability 9.0"
    return reason_against(op, *types) or wgmma_epilogue_reason(op, types) or _batch_reason(product_of(op, types))


def wgmma_epilogue_reason(op: Op, types: Types) -> str | None:
    """What is more than a scale, a clamp and zero points."""
    at, inner = operands_of(op, types), inner_of(op)
    activation = inner.activation if isinstance(inner, Int8Linear) else None
    if at.addend >= 0 or not isinstance(activation, Relu | Clip | None):
        return "adds nothing and applies no more than a clamp"
    if at.w_point >= 0 or dtype_at(types, at.w) == "uint8":
        return "takes signed weights without a zero point"
    if result_of(op, types).dtype == "float32":
        return "gives 8 bits or sums"
    return None


def _batch_reason(product: Product) -> str | None:
    return None if product.groups == 1 else "takes one product, not a batch of them"


def run_from_plan(op: Op, *operands: Any, out: Any, workspace: Any = None) -> None:
    """The function of a kernel that only `bind` makes runnable; nothing calls it."""
    raise NotImplementedError(f"{type(op).__name__} runs from a plan only")


def _kernel(
    op: type[Op],
    variant: str,
    choices: dict[str, Tile],
    supports: Callable[..., str | None],
    taken: Taken,
    splits: tuple[int, ...] = tiles.SPLITS,
) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant=variant,
        dtypes=EIGHT_BITS,
        supports=supports,
        workspace=workspace,
        bind=lambda op, types, constants, **settings: bind(variant, choices, op, types, constants, **settings),
        estimate=lambda op, *types, **settings: estimate(choices, taken, op, *types, **settings),
        tune={"tile": tiles.fitting(choices), "split": splits},
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (
    *(_kernel(op, "dp4a", tiles.DP4A, reason_against, tile_times.dp4a_seconds) for op in OPS),
    *(_kernel(op, "mma", tiles.MMA, mma_reason, tile_times.mma_seconds) for op in OPS),
    *(_kernel(op, "warpgroup", tiles.WARPGROUP, warpgroup_reason, tile_times.warpgroup_seconds) for op in OPS),
    *(_kernel(op, "wgmma", tiles.WGMMA, wgmma_reason, tile_times.wgmma_seconds, splits=(1,)) for op in WGMMA_OPS),
)
