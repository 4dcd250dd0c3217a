"""If, Loop and Scan: the core walks them, and their sub-graphs are programs of their own for the same device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import Graph, Node, Op, TensorType, Value, numpy_dtype
from aicore.ops.control import If, Loop, Scan, keeps_condition
from aicore.runtime.device import Device
from aicore.runtime.memory import check_room

Arrays: TypeAlias = "list[Any]"
Body: TypeAlias = Callable[[Sequence[Any]], Arrays]
"""A sub-graph as a function of arrays of the device; the sizes may differ from call to call."""
CompileBody: TypeAlias = Callable[[Graph], Body]


TRIP_LIMIT = 10_000_000
"""Iterations of one loop. Each costs Python ten microseconds or more, so that a longer one is no program but a hang."""


def is_control_flow(op: Op) -> bool:
    """Whether the core runs the op instead of a kernel."""
    return isinstance(op, (If, Loop, Scan))


def control_flow(node: Node, device: Device, compile_body: CompileBody, limit: int | None = None) -> Body:
    """The node as a function of its operands, None where one is absent; arrays stay on the device.

    limit: bytes that collected results may take; None means what the system has left.
    """
    match node.op:
        case If():
            return _if(node.op, device, compile_body)
        case Loop():
            return _loop(node, node.op, device, compile_body, limit)
        case Scan():
            return _scan(node, node.op, device, compile_body, limit)
    raise ExecutionError(f"{node} is no control flow")


def _if(op: If, device: Device, compile_body: CompileBody) -> Body:
    branches = {True: compile_body(op.then_branch), False: compile_body(op.else_branch)}

    def run(operands: Sequence[Any]) -> Arrays:
        condition, *captured = operands
        return branches[_truth(device, condition)](captured)

    return run


def _loop(node: Node, op: Loop, device: Device, compile_body: CompileBody, limit: int | None) -> Body:
    body = compile_body(op.body)
    count = op.carried
    counter, flag = (value.type for value in op.body.inputs[:2])

    def run(operands: Sequence[Any]) -> Arrays:
        trips = None if operands[0] is None else int(device.download(operands[0]).item())
        condition = operands[1] is None or _truth(device, operands[1])
        initial = list(operands[2 : 2 + count])
        captured = operands[2 + count :]
        state: Arrays = initial
        rows = _Rows(node, count, limit)
        i = 0
        if condition and (trips is None or trips > TRIP_LIMIT) and keeps_condition(op.body):
            raise _too_long(node, trips)
        while condition and (trips is None or i < trips):
            if i >= TRIP_LIMIT:
                raise _too_long(node, trips)
            iteration = device.upload(_scalar(i, counter))
            again, *results = body([iteration, device.upload(_scalar(True, flag)), *state, *captured])
            condition = _truth(device, again)
            state = results[:count]
            rows.add([device.download(element) for element in results[count:]])
            i += 1
        if i == 0:  # the caller owns the operands, so they cannot be results as they are
            state = [device.copy(array) for array in initial]
        stacked = [_stack(elements, value.type, 0) for elements, value in rows.of_outputs()]
        return [*state, *map(device.upload, stacked)]

    return run


def _scan(node: Node, op: Scan, device: Device, compile_body: CompileBody, limit: int | None) -> Body:
    body = compile_body(op.body)
    count, end = op.carried, op.carried + op.num_scan_inputs
    inputs = list(zip(op.scan_input_axes or (), op.scan_input_directions or (), strict=True))
    outputs = list(zip(op.scan_output_axes or (), op.scan_output_directions or (), strict=True))

    def run(operands: Sequence[Any]) -> Arrays:
        initial, captured = list(operands[:count]), operands[end:]
        sources = [device.download(array) for array in operands[count:end]]
        slices = [_slices(array, *how) for array, how in zip(sources, inputs, strict=True)]
        lengths = {len(one) for one in slices}
        if len(lengths) != 1:
            raise ExecutionError(f"{node}: scan inputs have different numbers of slices: {sorted(lengths)}")
        state: Arrays = initial
        rows = _Rows(node, count, limit)
        for elements in zip(*slices, strict=True):
            results = body([*state, *(device.upload(element) for element in elements), *captured])
            state = results[:count]
            rows.add([device.download(element) for element in results[count:]])
        if lengths == {0}:
            state = [device.copy(array) for array in initial]
        stacked = [
            _stack(elements[::-1] if backwards else elements, value.type, axis)
            for (elements, value), (axis, backwards) in zip(rows.of_outputs(), outputs, strict=True)
        ]
        return [*state, *map(device.upload, stacked)]

    return run


class _Rows:
    """What the iterations gave, by scanned output, while there is room to stack it."""

    def __init__(self, node: Node, carried: int, limit: int | None) -> None:
        self._node = node
        self._values = node.outputs[carried:]
        self._collected: list[Arrays] = [[] for _ in self._values]
        self._limit = limit
        self._nbytes = self._checked = 0

    def add(self, elements: Sequence[np.ndarray[Any, Any]]) -> None:
        for collected, element in zip(self._collected, elements, strict=True):
            collected.append(element)
            self._nbytes += element.nbytes
        if self._nbytes > 2 * self._checked:
            check_room(self._nbytes, f"{self._node}: what its iterations gave so far", self._limit)
            self._checked = self._nbytes

    def of_outputs(self) -> list[tuple[Arrays, Value]]:
        return list(zip(self._collected, self._values, strict=True))


def _too_long(node: Node, trips: int | None) -> ExecutionError:
    count = "without end" if trips is None else f"{trips} times"
    return ExecutionError(f"{node}: would run {count}; no loop may run more than {TRIP_LIMIT} times")


def _truth(device: Device, condition: Any) -> bool:
    return bool(device.download(condition).item())


def _scalar(number: int | bool, tensor: TensorType) -> np.ndarray[Any, Any]:
    """The number as the body takes it: of rank 0, or as one element."""
    return np.full((1,) * (tensor.rank or 0), number, numpy_dtype(tensor.dtype))


def _slices(array: np.ndarray[Any, Any], axis: int, backwards: int) -> Arrays:
    moved = np.moveaxis(array, axis, 0)
    return [np.array(element, order="C") for element in (moved[::-1] if backwards else moved)]


def _stack(elements: Sequence[np.ndarray[Any, Any]], tensor: TensorType, axis: int) -> np.ndarray[Any, Any]:
    """The elements along a new axis; of no elements, an empty array whose unknown dims are 0."""
    if elements:
        return np.stack(elements, axis)
    shape = [dim if isinstance(dim, int) else 0 for dim in tensor.shape or (0,)]
    return np.empty(shape, numpy_dtype(tensor.dtype))
