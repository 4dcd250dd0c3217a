"""ConvInteger and Int8Conv of few channels, channels last, by threads that hold four neighbouring results each.

depthwise: one channel for each result, and one or several results of each. grouped: channels of a group in fours.
few: images of so few channels that a row of a window is a few words. No copy of x is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import EIGHT_BITS, ConvInteger
from aicore_int8_quant.cuda import products, tiles
from aicore_int8_quant.cuda.convolutions import prepared, reason_against
from aicore_int8_quant.cuda.launch import Launch, launch, machine
from aicore_int8_quant.cuda.packing import WORD, padded
from aicore_int8_quant.cuda.problem import Places, operands_of, params_of
from aicore_int8_quant.cuda.windows import Convolution, convolution_of
from aicore_int8_quant.ops.linear import Int8Conv

Types = Sequence["TensorType | None"]
OPS: tuple[type[Op], ...] = (ConvInteger, Int8Conv)
"""The zero point of a weight, which QLinearConv always has, is known to be 0 only once it is fused."""
MOST_WORDS = 6
"""Of a row of a window, for `few`."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of the .cu file. Places down and across, and words of results of each, of a thread."""

    index: int
    down: int
    across: int
    words: int = 1


DEPTHWISE = {"1x2": Tile(0, 1, 2), "2x2": Tile(1, 2, 2), "4x2": Tile(2, 4, 2)}
GROUPED = {"1": Tile(0, 1, 1), "2": Tile(1, 1, 2), "4": Tile(2, 1, 4), "8": Tile(3, 1, 8)}
FEW = {"1x1": Tile(0, 1, 1), "1x2": Tile(1, 1, 1, 2), "2x4": Tile(2, 1, 2, 4), "4x2": Tile(3, 1, 4, 2)}
"""Places across x words."""


def _reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := reason_against(op, *types):
        return reason
    found, at = convolution_of(op, *types), operands_of(op, types)
    if at.w_point >= 0 or found.unsigned_weights:
        return "takes signed weights without a zero point"
    outputs = found.groups * found.maps
    return f"gives results of a place in fours, here {outputs}" if outputs % WORD else None


def depthwise_reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := _reason(op, *types):
        return reason
    found = convolution_of(op, *types)
    if found.channels != 1 or found.groups % WORD:
        return "takes one channel for each result, channels in fours"
    fits = found.maps in (1, 2) or found.maps % WORD == 0
    return None if fits else "takes 1, 2 or fours of maps for each channel"


def grouped_reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := _reason(op, *types):
        return reason
    found = convolution_of(op, *types)
    return "takes channels and maps of a group in fours" if found.channels % WORD or found.maps % WORD else None


def few_reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := _reason(op, *types):
        return reason
    found = convolution_of(op, *types)
    if found.groups != 1 or found.dilation[1] != 1:
        return "takes one group, and taps of a row next to each other"
    if found.channels % WORD == 0 or found.kernel[1] * found.channels > MOST_WORDS * WORD:
        return f"takes rows of windows of at most {MOST_WORDS} words, of channels not in fours"
    if not found.pixels:
        return "takes images of at least one pixel"  # reads at the ends of x are moved into x
    return "takes images that are whole words" if found.images * found.pixels * found.channels % WORD else None


def _bind(name: str, choices: dict[str, Tile], op: Op, types: Types, constants: Sequence[Any], tile: str) -> Any:
    found, out = convolution_of(op, *types), products.result_of(op, types)
    if not out.size:
        return ()
    ready, x = prepared(found.word_weights, op, types, constants)
    sizes, _, _ = found.direct()
    places = Places(x, ready.b, ready.sums)
    params = params_of(op, types, out, sizes, places, found.full, choices[tile].index)
    constant = all(
        given is not None or types[i] is None
        for i, given in enumerate(constants)
        if i not in (x, operands_of(op, types).addend)
    )
    calls: tuple[Launch, ...] = (*ready.calls, launch(f"int8_conv_{name}", (*params, int(constant)), ready.extra))
    return calls


def workspace(op: Op, *types: TensorType | None, tile: str = "") -> int:
    weights = convolution_of(op, *types).word_weights
    return weights.nbytes + weights.sum_bytes


def _kernel(
    op: type[Op],
    name: str,
    choices: dict[str, Tile],
    supports: Callable[..., str | None],
    taken: Callable[[Convolution, Tile, int], float],
) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant=name,
        dtypes=EIGHT_BITS,
        supports=supports,
        workspace=workspace,
        bind=lambda op, types, constants, **settings: _bind(name, choices, op, types, constants, **settings),
        estimate=lambda op, *types, tile: _estimate(taken, choices[tile], op, *types),
        tune={"tile": tuple(choices)},
        wraps=op,
    )
    return made(products.run_from_plan)


def _estimate(taken: Callable[[Convolution, Tile, int], float], tile: Tile, op: Op, *types: TensorType | None) -> float:
    """Taking weights for constant, as they are as a rule."""
    found = convolution_of(op, *types)
    usual = products.ending_of(op, types, found.full) == tiles.CODES
    return taken(found, tile, 1 if usual else _OTHER_RESULT)


@dataclass(frozen=True)
class Work:
    """Of a tile: dp4a's, reads of x, other steps (words turned, weights read), and results."""

    products: int
    reads: int
    others: int
    results: int


@dataclass(frozen=True)
class Costs:
    """Of a kernel, as measured on an H200: instructions of a thread before its first tile and for each piece of work,
    and seconds: at least, and for each instruction of a tile while nothing else runs."""

    before: float
    product: float
    read: float
    other: float
    result: float
    least: float
    latency: float

    def of(self, work: Work) -> float:
        """Instructions of a tile."""
        return (
            self.product * work.products
            + self.read * work.reads
            + self.other * work.others
            + self.result * work.results
        )


_DEPTHWISE = Costs(172.0, 1.04, 7.1, 28.4, 5.8, 1.1e-6, 0.46e-9)
_GROUPED = Costs(144.0, 0.81, 8.0, 19.0, 6.1, 0.51e-6, 2.1e-9)
_LEAST_GROUPED, _SLIDING, _GATHERING = 1.45e-6, 1.1, 1.6
"""At least; and how much longer tiles take than their instructions, by windows that share what they read and others."""
_FEW = Costs(32.0, 1.61, 12.6, 15.9, 12.7, 1.48e-6, 0.72e-9)
_INSTRUCTIONS_EACH_SECOND = 128 * 1.755e9
"""Of a multiprocessor."""
_MEMORY_SHARE = 0.8
"""Of what memory moves in a copy."""
_OTHER_RESULT = 25
"""Of how many codes finishing a result of another kind takes the time."""
_RESIDENT, _BLOCK = 700, 64
"""Threads of a multiprocessor at a time; and of a block."""


def _seconds(found: Convolution, tile: Tile, costs: Costs, work: Work) -> float:
    """Instructions of all threads, or memory if that takes longer, and what one tile waits for."""
    multiprocessors, outputs = machine().multiprocessors, found.groups * found.maps
    tiles_of_image = -(-found.out[0] // tile.down) * -(-found.out[1] // tile.across)
    threads = found.images * tiles_of_image * -(-outputs // (WORD * tile.words))
    at_once = multiprocessors * _RESIDENT
    begun = threads // max(1, threads // (2 * at_once))  # as csrc/fours.cuh has them
    if threads < at_once:  # as many as of the multiprocessor that has most
        threads = begun = -(-threads // (_BLOCK * multiprocessors)) * _BLOCK * multiprocessors
    each = costs.of(work)
    instructions = begun * costs.before * (0.6 + 0.4 * tile.words) + threads * each
    busy = instructions / (multiprocessors * _INSTRUCTIONS_EACH_SECOND)
    moved = found.images * (found.pixels * found.groups * found.channels + found.positions * outputs)
    return costs.least + each * costs.latency + max(busy, moved / (_MEMORY_SHARE * tiles.BYTES_EACH_SECOND))


def _depthwise_seconds(found: Convolution, tile: Tile, each_result: int) -> float:
    side, stride = found.kernel[0], found.stride[0]
    slides = found.kernel in ((3, 3), (5, 5)) and found.dilation == (1, 1) and found.stride in ((1, 1), (2, 2))
    if not slides:
        places = 4
        work = Work(WORD * places * found.taps, places * found.taps, found.taps, WORD * places * each_result)
        return _seconds(found, Tile(0, 1, places), _DEPTHWISE, work)
    rows, columns = stride * (tile.down - 1) + side, stride * (tile.across - 1) + side
    results = WORD * tile.down * tile.across
    work = Work(side * -(-side // WORD) * results, rows * columns, rows * tile.across, results * each_result)
    return _seconds(found, tile, _DEPTHWISE, work)


def _grouped_seconds(found: Convolution, tile: Tile, each_result: int) -> float:
    words, results = found.terms // WORD, WORD * tile.across
    at_once = next(n for n in (4, 2, 1) if found.channels % (n * WORD) == 0)
    columns = found.stride[1] * (tile.across - 1) + found.kernel[1]
    reads = found.kernel[0] * columns * found.channels // (WORD * at_once)
    taken = _seconds(found, tile, _GROUPED, Work(words * results, reads, words, results * each_result))
    slides = found.kernel == (3, 3) and found.dilation == (1, 1) and found.channels in (4, 8, 16)
    return max(_LEAST_GROUPED, taken * (_SLIDING if slides else _GATHERING))


def _few_seconds(found: Convolution, tile: Tile, each_result: int) -> float:
    words = padded(found.kernel[1] * found.channels, WORD) // WORD
    results, rows = WORD * tile.across * tile.words, found.kernel[0]
    work = Work(
        rows * words * results, rows * (words + 1) * tile.across, rows * words * tile.words, results * each_result
    )
    return _seconds(found, tile, _FEW, work)


KERNELS: tuple[Kernel, ...] = (
    *(_kernel(op, "depthwise", DEPTHWISE, depthwise_reason, _depthwise_seconds) for op in OPS),
    *(_kernel(op, "grouped", GROUPED, grouped_reason, _grouped_seconds) for op in OPS),
    *(_kernel(op, "few", FEW, few_reason, _few_seconds) for op in OPS),
)
