"""ConvInteger, QLinearConv and Int8Conv, channels first or last, by the kernels of csrc.

dp4a, mma, warpgroup: a product whose rows are windows of an image with channels last, in chunks of 16; other images are
copied first; of few channels, the taps of a row lie side by side then. wgmma: where windows are pixels. direct: one
thread for each result. Those for few channels are in `fours`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import EIGHT_BITS, MOST_TERMS, ConvInteger, QLinearConv
from aicore_int8_quant.cuda import products, tile_times, tiles
from aicore_int8_quant.cuda.launch import Launch, launch, machine
from aicore_int8_quant.cuda.packing import Ready, Weights, make_ready
from aicore_int8_quant.cuda.problem import Places, operands_of, params_of, place, shape_at
from aicore_int8_quant.cuda.products import Taken
from aicore_int8_quant.cuda.tiles import Tile
from aicore_int8_quant.cuda.windows import AXES, convolution_of
from aicore_int8_quant.ops.linear import Int8Conv

Types = Sequence["TensorType | None"]
OPS: tuple[type[Op], ...] = (ConvInteger, QLinearConv, Int8Conv)
_DIRECT_PRODUCTS, _DIRECT_RESULTS = 2.5e11, 8e10
"""Of one thread for each result: products and results each second of all of them."""
_DIRECT_SECONDS, _PRODUCT_SECONDS = 2.9e-6, 42e-9
"""To begin; and what a thread waits for each of its products."""


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What no kernel here takes."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    at = operands_of(op, types)
    w = shape_at(types, at.w)
    count = len(w) - 2
    if not 1 <= count <= AXES:
        return f"takes images of one or two spatial axes, here {count}"
    by_channel = (0,) if isinstance(op, ChannelsLast) else (w[0], *(1,) * count)  # last, it would be an image, too
    if reason := products.parameter_reason(op, types, w[0], by_channel):
        return reason
    found = convolution_of(op, *types)
    if not 0 < found.terms <= MOST_TERMS:
        return f"adds up 1 to {MOST_TERMS} products, here {found.terms}"
    elements = found.images * found.pixels * found.groups * max(found.channels, found.per_tap)
    reach = sum(k * d for k, d in zip(found.kernel, found.dilation, strict=True)) + sum(found.begin)
    margin = reach * (found.size[1] + reach) * found.groups * found.per_tap
    ends = max((o - 1) * s for o, s in zip(found.out, found.stride, strict=True)) * found.groups * found.per_tap
    outputs = found.images * found.positions * found.groups * found.maps
    if max(elements + margin, ends, found.copied_bytes, outputs) > products.LARGEST:  # ends: in padding, maybe
        return "takes images of fewer than 2**31 elements"
    return products.size_reason(found.sizes)


def mma_reason(op: Op, *types: TensorType | None) -> str | None:
    if machine().capability < 80:
        return "takes GPUs of compute capability 8.0 and above"
    return reason_against(op, *types)


def warpgroup_reason(op: Op, *types: TensorType | None) -> str | None:
    if machine().capability != 90:
        return "takes GPUs of compute capability 9.0"
    return reason_against(op, *types)


def wgmma_reason(op: Op, *types: TensorType | None) -> str | None:
    if machine().capability != 90:
        return "takes GPUs of compute capability 9.0"
    if reason := reason_against(op, *types) or products.wgmma_epilogue_reason(op, types):
        return reason
    found = convolution_of(op, *types)
    in_rows = found.groups == 1 and found.last and found.is_plain
    return None if in_rows else "takes windows of one pixel, of one group, channels last"


def prepared(weights: Weights, op: Op, types: Types, constants: Sequence[Any]) -> tuple[Ready, int]:
    """(weights, position of x)."""
    at = operands_of(op, types)
    points = constants[at.w_point] if at.w_point >= 0 else None
    places = (at.w, at.w_point)
    return make_ready(weights, constants[at.w], points, at.w_point >= 0, places, len(types) + 1), at.x


def bind(
    name: str, choices: dict[str, Tile], op: Op, types: Types, constants: Sequence[Any], tile: str, split: int
) -> tuple[Launch, ...]:
    found, partial = convolution_of(op, *types), products.is_partial(split)
    if not products.result_of(op, types).size:
        return ()
    ready, x = prepared(found.weights, op, types, constants)
    sizes = found.sizes
    room = products.rooms(sizes, found.weights, found.copied_bytes, partial)
    a = x if found.is_ready else place(len(types) + 1, room.x)
    copies = found.copy(x, operands_of(op, types).x_point, a)
    kind = "conv" if sizes.taps else "gemm"
    made = products.finished(
        f"int8_{kind}_{name}", op, types, sizes, a, ready, room, found.full, choices[tile].index, split, partial
    )
    return (*copies, *made)


def workspace(op: Op, *types: TensorType | None, tile: str = "", split: int = 1) -> int:
    found = convolution_of(op, *types)
    return products.rooms(found.sizes, found.weights, found.copied_bytes, products.is_partial(split)).size


def estimate(
    choices: dict[str, Tile],
    taken: Taken,
    op: Op,
    *types: TensorType | None,
    tile: str,
    split: int = 1,
) -> float:
    """Taking weights for constant, as they are as a rule."""
    found = convolution_of(op, *types)
    copy = tile_times.copy_seconds(found.copied_bytes, turned=not (found.last or found.lays_out))
    ending = products.ending_of(op, types, found.full)
    return copy + taken(found.sizes, choices[tile], split, ending)


def bind_direct(op: Op, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    found, out = convolution_of(op, *types), products.result_of(op, types)
    if not out.size:
        return ()
    ready, x = prepared(found.plain_weights, op, types, constants)
    sizes, channel, row = found.direct()
    places = Places(x, ready.b, ready.sums)
    params = params_of(op, types, out, sizes, places, found.full)
    return (*ready.calls, launch("int8_conv_direct", (*params, channel, row), ready.extra))


def direct_workspace(op: Op, *types: TensorType | None) -> int:
    weights = convolution_of(op, *types).plain_weights
    return weights.nbytes + weights.sum_bytes


def direct_estimate(op: Op, *types: TensorType | None) -> float:
    found = convolution_of(op, *types)
    results = found.images * found.positions * found.groups * found.maps
    work = results * (found.terms / _DIRECT_PRODUCTS + 1 / _DIRECT_RESULTS)
    return _DIRECT_SECONDS + found.terms * _PRODUCT_SECONDS + work


def _tiled(
    op: type[Op],
    wraps: type[Op] | None,
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
        wraps=wraps,
    )
    return made(products.run_from_plan)


def _direct(op: type[Op], wraps: type[Op] | None) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="direct",
        dtypes=EIGHT_BITS,
        supports=reason_against,
        workspace=direct_workspace,
        bind=bind_direct,
        estimate=direct_estimate,
        wraps=wraps,
    )
    return made(products.run_from_plan)


def _kernels_of(op: type[Op], wraps: type[Op] | None) -> tuple[Kernel, ...]:
    """wgmma takes neither channels first nor the zero point of a weight, which QLinearConv always has."""
    by_rows = wraps is not None and wraps is not QLinearConv
    return (
        _tiled(op, wraps, "dp4a", tiles.DP4A_IMAGES, reason_against, tile_times.dp4a_seconds),
        _tiled(op, wraps, "mma", tiles.MMA, mma_reason, tile_times.mma_seconds),
        _tiled(op, wraps, "warpgroup", tiles.WARPGROUP, warpgroup_reason, tile_times.warpgroup_seconds),
        *((_tiled(op, wraps, "wgmma", tiles.WGMMA, wgmma_reason, tile_times.wgmma_seconds, (1,)),) if by_rows else ()),
        _direct(op, wraps),
    )


KERNELS: tuple[Kernel, ...] = (
    *(made for op in OPS for made in _kernels_of(op, None)),
    *(made for op in OPS for made in _kernels_of(ChannelsLast, op)),
)
