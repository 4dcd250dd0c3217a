"""Kernels that take rows that lie apart: the bits of dense arrays, nothing written between rows, nothing read early."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Op, Sample, TensorType, as_tuple, dtype_name, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.activation import HardSwish, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, ScaleActConv
from aicore.ops.layout import ChannelsLast
from aicore.plugins import PluginRegistry
from aicore.runtime import using_threads
from aicore.testing.reference import Reference
from aicore_cpu_numpy import plugin
from aicore_cpu_numpy.fast import (
    _last_products,
    _last_rates,
    _last_shifted,
    _last_windows,
    _parallel,
    last_convolution,
)
from aicore_cpu_numpy.fast._rows import view_as
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]

PITCHED = [kernel for kernel in all_kernels() if kernel.pitched]
BETWEEN = 5
"""Elements between rows, which hold a pattern that must stay."""


@dataclass
class Memory:
    """An array, and the memory in which its rows lie; `between` is what no kernel may touch."""

    whole: Array
    array: Array
    between: Array

    @classmethod
    def of(cls, tensor: TensorType, apart: bool) -> Memory:
        shape, dtype = tensor.static_shape, numpy_dtype(tensor.dtype)
        apart = apart and len(shape) > 1 and math.prod(shape[:-1]) > 1
        width = shape[-1] + 2 * BETWEEN if apart else (shape or (1,))[-1]
        whole = np.zeros((*shape[:-1], width), dtype)
        whole.view(np.uint8)[...] = 255
        array = whole[..., BETWEEN : BETWEEN + shape[-1]] if apart else whole.reshape(shape)
        between = whole[..., shape[-1] + BETWEEN :] if apart else whole[..., :0]
        return cls(whole, array, between)

    @property
    def is_clean(self) -> bool:
        before = self.whole[..., : self.between.shape[-1]]
        return all((np.ascontiguousarray(edge).view(np.uint8) == 255).all() for edge in (before, self.between))


def cases() -> Iterator[tuple[Kernel, Sample]]:
    rng = np.random.default_rng(0)
    samples: dict[type[Op], list[Sample]] = {}
    for kernel in PITCHED:
        if kernel.op not in samples:
            extra = list(convolutions(rng)) if kernel.op is ChannelsLast else []
            samples[kernel.op] = [*kernel.op.samples(rng), *extra]
        for sample in samples[kernel.op]:
            if kernel.wraps in (None, type(getattr(sample.op, "inner", None))):
                yield kernel, sample


def convolutions(rng: np.random.Generator) -> Iterator[Sample]:
    """Of several blocks, channels enough for Winograd, everything that may follow, and depthwise ones."""
    kinds = {
        "1x1": Conv(),
        "to one": Conv(),
        "3x3": Conv(pads=(1, 1, 1, 1)),
        "strided": Conv(pads=(1, 0, 1, 1), strides=(2, 2)),
        "grouped": Conv(group=2),
        "depthwise": Conv(group=24, pads=(1, 1, 1, 1)),
    }
    for (kind, conv), follow in itertools.product(kinds.items(), ("", "Relu", "HardSwish", "+", "+Relu")):
        size = 1 if kind in ("1x1", "to one", "grouped") else 3
        channels, maps = 24, {"depthwise": 24, "to one": 1}.get(kind, 20)
        x = rng.normal(size=(2, 18, 13, channels)).astype(np.float32)
        w = rng.normal(size=(maps, channels // conv.group, size, size)).astype(np.float32)
        b = rng.normal(size=maps).astype(np.float32)
        activation = HardSwish() if follow == "HardSwish" else Relu()
        inner: Op = conv
        inputs: tuple[Array, ...] = (x, w, b)
        if follow.startswith("+"):
            dims = (9, 6) if kind == "strided" else x.shape[1:3]
            residual = rng.normal(size=(2, *dims, maps)).astype(np.float32)
            inputs = (x, w, residual, b)
            inner = ConvAdd(conv) if follow == "+" else ConvAddAct(conv, activation)
        elif follow:
            inner = ConvAct(conv, activation)
        constant = (1, len(inputs) - 1)
        yield Sample(ChannelsLast(inner, 4), inputs, constant, f"{kind} {follow}")
    for group, linear in itertools.product((1, 2), (lambda conv: conv, lambda conv: ConvAct(conv, HardSwish()))):
        shapes = (2, 18, 13, 24), (24, 1, 1), (24, 1, 1), (20, 24 // group, 1, 1), (20,)
        inputs = tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)
        for known in range(1, 5), range(0):
            op = ChannelsLast(ScaleActConv(Relu(), linear(Conv(group=group))), 4)
            yield Sample(op, inputs, tuple(known), f"scaled, {group} groups, {len(known)} constants")


CASES = list(cases())


@pytest.fixture(scope="module")
def expected() -> Callable[..., Any]:
    return Reference(PluginRegistry.from_modules({"cpu_numpy": plugin})).expected


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", PITCHED, ids=lambda kernel: f"{kernel.op.__name__}-{kernel.name}")
def test_gives_the_bits_of_dense_arrays(
    kernel: Kernel, threads: int, expected: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_parallel, _last_rates, _last_products, _last_windows, _last_shifted):
        monkeypatch.setattr(module, "PARALLEL", 0.0, raising=False)  # small work is shared too
    # Made anew: methods remember into how many parts they cut the work.
    monkeypatch.setattr(last_convolution, "_made", last_convolution._made.__wrapped__)
    ran = 0
    with using_threads(threads), np.errstate(all="ignore"):
        for sample in (sample for owner, sample in CASES if owner is kernel):
            ran += compare(kernel, sample, expected)
    assert ran, "no sample that the kernel runs"


def compare(kernel: Kernel, sample: Sample, expected: Callable[..., Any]) -> int:
    """How many ways of lying apart were tried."""
    builder = Builder()
    values = [
        None
        if a is None
        else builder.constant(a, f"c{i}")
        if i in sample.constant
        else builder.input(f"x{i}", dtype_name(a.dtype), a.shape)
        for i, a in enumerate(sample.inputs)
    ]
    results = [value.type for value in as_tuple(builder.apply(sample.op, *values))]
    node = builder.nodes[-1]
    types = [None if v is None else v.type for v in node.inputs]
    if kernel.reason_against(node.op, *types) is not None or not all(t.is_static for t in results):
        return 0
    arrays = [
        None if v is None else v.constant.array if v.constant else sample.inputs[values.index(v)] for v in node.inputs
    ]
    constants = [None if v is None or v.constant is None else v.constant.array for v in node.inputs]
    wanted = expected(node.op, arrays, [t.dtype for t in results])
    ran = 0
    for settings in kernel.settings:
        dense = run(kernel, node.op, types, results, arrays, constants, settings, (False, False))
        assert not wanted.fault(dense), wanted.fault(dense)
        for apart in ((True, False), (False, True), (True, True)):
            got = run(kernel, node.op, types, results, arrays, constants, settings, apart)
            for a, b in zip(dense, got, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{kernel.name} {settings} {sample.note} {apart}")
            ran += 1
    return ran


def run(
    kernel: Kernel,
    op: Op,
    types: Sequence[TensorType | None],
    results: Sequence[TensorType],
    arrays: Sequence[Array | None],
    constants: Sequence[Array | None],
    settings: Any,
    apart: tuple[bool, bool],
) -> list[Array]:
    """Results of a kernel that was placed before its operands had their numbers, as in a plan."""
    operands = [
        None if t is None else Memory.of(t, apart[0] and constant is None)
        for t, constant in zip(types, constants, strict=True)
    ]
    outputs = [Memory.of(t, apart[1]) for t in results]
    options: dict[str, Any] = {"out": outputs[0].array if len(outputs) == 1 else tuple(o.array for o in outputs)}
    if kernel.workspace is not None:
        more = {"pitched": True} if any(o.between.size for o in outputs) else {}
        nbytes = kernel.workspace(op, *types, **settings, **more)
        options["workspace"] = np.full(nbytes + 64, 255, np.uint8)[:nbytes]
    call = (
        kernel.bind(op, types, constants, **settings)
        if kernel.bind
        else (lambda *xs, **given: kernel.function(op, *xs, **given))
    )
    given = [None if m is None else m.array for m in operands]
    for memory, constant in zip(operands, constants, strict=True):
        if memory is not None and constant is not None:
            memory.array[...] = constant
    placed = call.place(*given, **options) if hasattr(call, "place") else lambda: call(*given, **options)
    for memory, array in zip(operands, arrays, strict=True):
        if memory is not None:
            memory.array[...] = array
    placed()
    assert all(memory is None or memory.is_clean for memory in (*operands, *outputs)), "wrote between rows"
    for memory, array in zip(operands, arrays, strict=True):
        assert memory is None or np.array_equal(memory.array, array, equal_nan=array.dtype.kind == "f"), (
            "wrote an operand"
        )
    return [memory.array.copy() for memory in outputs]


def test_a_view_is_no_copy() -> None:
    rows = np.zeros((4, 6, 8), np.float32)[..., :5]
    assert np.shares_memory(view_as(rows, (24, 5)), rows)
    assert view_as(np.zeros((2, 0, 3), np.float32)[..., :2], (0, 2)).shape == (0, 2)
    with pytest.raises(ValueError, match=r"\(4, 6, 5\) with strides \(192, 32, 4\) cannot be seen as \(120,\)"):
        view_as(rows, (120,))
