"""From a step of a plan to one call that takes nothing but the run's arrays.

What a kernel's `bind` returns may have a method `place(*inputs, out=..., workspace=...) -> callable()`. It is called
once for arrays that are the same in every run, those of an arena, so that views of them are made once; calling the
bound function itself must do the same as calling what `place` returns.
Where other arrays are among them, those of the program's inputs and outputs, only the workspace stays the same. They
are placed when they come a second time, as those of parameters do that are trained, beside small copies of what is new
in each run; or the function may have a method `prepare(workspace) -> callable(*inputs, out=...)` for that, called once
for each arena.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import TensorType, Value, as_tuple, constant_value, numpy_dtype
from aicore.ir.inference import check_possible
from aicore.records import dataclass
from aicore.runtime import BufferPlan, Plan, Step, Storage, bytes_of, check_room, type_of, using_threads
from aicore_cpu_numpy.arena import POISON, Arena, Array, Environment

_LATE_SIZES = 32
"""Sets of sizes for which a step that learns its sizes at run time keeps what it resolved."""

_CALLER_SETS = 2
_COPIED_BYTES = 1 << 20
"""Of an input that is new in each run: to copy so many bytes takes 0.1 ms, and to place a convolution up to 1 ms."""

Call: TypeAlias = Callable[[Environment], Any]


class BoundStep:
    """A step with its kernel's function resolved: once for each plan, or once for each set of sizes found at run time.

    sized: all operands and results have sizes known before the run.
    """

    def __init__(self, plan: Plan, step: Step) -> None:
        self.step = step
        self.poison = plan.poison
        self.limit = plan.limit
        self.threads = plan.threads
        self.dynamic = [plan.buffers[i].storage is Storage.DYNAMIC for i in step.outputs]
        self.output_types = [plan.buffers[i].type for i in step.outputs]
        self.sized = all(t.is_static for t in (*_operand_types(plan, step), *self.output_types))
        self.constants = [None if i is None else _constant(plan.buffers[i], plan) for i in step.inputs]
        self.regions = [(plan.buffers[i].offset, plan.buffers[i].nbytes) for i in step.dies if _in_arena(plan, i)]
        self.loose = [i for i in step.dies if not _in_arena(plan, i)]
        self.function = self._resolve([None if v is None else v.type for v in step.node.inputs]) if self.sized else None
        self._late: OrderedDict[tuple[TensorType | None, ...], _Late] = OrderedDict()
        self._lock = threading.Lock()

    def late(self, types: tuple[TensorType | None, ...]) -> _Late:
        """What to call for operands of these sizes."""
        with self._lock:
            found = self._late.get(types)
            if found is None:
                with using_threads(self.threads):
                    found = self._late[types] = self._specialise(types)
            self._late.move_to_end(types)
            if len(self._late) > _LATE_SIZES:
                self._late.popitem(last=False)
            return found

    def _resolve(self, types: Sequence[TensorType | None]) -> Callable[..., Any]:
        kernel, op = self.step.kernel, self.step.node.op
        if kernel.bind is None:
            return partial(kernel.function, op)
        bound: Callable[..., Any] = kernel.bind(op, types, self.constants, **self.step.settings)
        if not callable(bound):
            raise ExecutionError(
                f"kernel {kernel.name}: its bind returned {type(bound).__name__}; the CPU runs functions"
            )
        return bound

    def _specialise(self, types: tuple[TensorType | None, ...]) -> _Late:
        kernel, op = self.step.kernel, self.step.node.op
        reason = kernel.reason_against(op, *types)
        if reason is not None:
            raise ExecutionError(reason)
        values = [None if t is None else Value("operand", t) for t in types]
        known = [
            old if old is not None and old.constant is not None else v
            for old, v in zip(self.step.node.inputs, values, strict=True)
        ]
        inferred = as_tuple(op.infer(*known))
        settings = self.step.settings
        workspace = kernel.workspace(op, *types, **settings) if kernel.workspace is not None else None
        return _Late(self._resolve(types), inferred, workspace)


@dataclass(frozen=True)
class _Late:
    """A function for sizes that were found at run time, the types of its results, and bytes of its workspace."""

    function: Callable[..., Any]
    types: tuple[TensorType, ...]
    workspace: int | None


def bind_step(bound: BoundStep, arena: Arena) -> Call:
    """The call for one arena."""
    if not bound.sized or any(bound.dynamic):
        call = _sized_late(bound)
    elif bound.step.kernel.returns:
        call = _returning(bound, arena)
    else:
        call = _writing(bound, arena)
    return _burying(call, bound, arena) if bound.loose or bound.poison else call


def _writing(bound: BoundStep, arena: Arena) -> Call:
    """A kernel that writes to `out`. Without inputs or outputs of the program among its arrays, all is bound now."""
    function, inputs, outputs = bound.function, bound.step.inputs, bound.step.outputs
    assert function is not None  # sized
    options = _workspace(bound, arena)
    if all(i is None or arena.views[i] is not None for i in (*inputs, *outputs)):
        arrays = [None if i is None else arena.views[i] for i in inputs]
        results = tuple(arena.views[i] for i in outputs)
        place = getattr(function, "place", None) or partial(partial, function)
        whole = place(*arrays, out=results[0] if len(results) == 1 else results, **options)
        return lambda _: whole()
    if hasattr(function, "place") and not hasattr(function, "prepare"):
        loose = [i for i in dict.fromkeys((*inputs, *outputs)) if i is not None and arena.views[i] is None]
        return _Remembering(function, options, inputs, outputs, loose)
    if options:
        prepare = getattr(function, "prepare", None)
        function = partial(function, **options) if prepare is None else prepare(**options)
    if len(outputs) == 1:
        output = outputs[0]
        if len(inputs) > 1 and None not in inputs:
            pick = itemgetter(*inputs)  # the usual case, in a third of the time of the general one
            return lambda env: function(*pick(env), out=env[output])
        return lambda env: function(*[None if i is None else env[i] for i in inputs], out=env[output])
    return lambda env: function(*[None if i is None else env[i] for i in inputs], out=tuple(env[i] for i in outputs))


class _Remembering:
    """A step on arrays of the program's caller, with the calls for sets of them that come again.

    Parameters that are trained are read from one set of arrays and written to another, which change places. A batch
    comes in new arrays each time: a small one is copied to where the step has it placed, which takes less.
    """

    def __init__(
        self,
        function: Any,
        options: dict[str, Any],
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        loose: Sequence[int],
    ) -> None:
        self._function, self._options = function, options
        self._inputs, self._outputs, self._loose = inputs, outputs, loose
        self._known: OrderedDict[tuple[int, ...], tuple[list[Array], Callable[[], Any]]] = OrderedDict()
        self._seen: list[deque[weakref.ref[Any]]] = [deque(maxlen=_CALLER_SETS) for _ in loose]
        self._copies: dict[int, Array] = {}
        self._new = 0

    def __call__(self, env: Environment) -> Any:
        arrays: list[Any] = [env[i] for i in self._loose]
        found = self._known.get(tuple(map(id, arrays)))  # which keeps them: while they live, no others have their ids
        if found is not None:
            return found[1]()
        again = [self._comes_again(seen, array) for seen, array in zip(self._seen, arrays, strict=True)]
        self._new += not all(again)
        if all(again):
            return self._placed(arrays, env)()
        if self._new > _CALLER_SETS and self._may_copy(arrays, again):
            return self._placed(self._copied(arrays, again), env)()
        operands, out = self._arguments(arrays, env)
        return self._function(*operands, out=out, **self._options)

    def _placed(self, arrays: list[Array], env: Environment) -> Callable[[], Any]:
        key = tuple(map(id, arrays))
        found = self._known.get(key)
        if found is None:
            operands, out = self._arguments(arrays, env)
            found = self._known[key] = arrays, self._function.place(*operands, out=out, **self._options)
            _keep_last(self._known)
        return found[1]

    def _arguments(self, arrays: Sequence[Array], env: Environment) -> tuple[list[Array | None], Any]:
        mine = dict(zip(self._loose, arrays, strict=True))
        results = tuple(mine.get(i, env[i]) for i in self._outputs)
        operands = [None if i is None else mine.get(i, env[i]) for i in self._inputs]
        return operands, results[0] if len(results) == 1 else results

    @staticmethod
    def _comes_again(seen: deque[weakref.ref[Any]], array: Array) -> bool:
        """What is used once is let go of, so that the caller alone says how long it lives."""
        if any(ref() is array for ref in seen):
            return True
        seen.append(weakref.ref(array))
        return False

    def _may_copy(self, arrays: Sequence[Array], again: Sequence[bool]) -> bool:
        new = [(i, array) for i, array, old in zip(self._loose, arrays, again, strict=True) if not old]
        return all(i not in self._outputs and array.nbytes <= _COPIED_BYTES for i, array in new)

    def _copied(self, arrays: Sequence[Array], again: Sequence[bool]) -> list[Array]:
        found = list(arrays)
        for k, (i, array, old) in enumerate(zip(self._loose, arrays, again, strict=True)):
            if not old:
                found[k] = self._copies.setdefault(i, np.empty_like(array))
                np.copyto(found[k], array)
        return found


def _keep_last(sets: OrderedDict[Any, Any]) -> None:
    if len(sets) > _CALLER_SETS:
        sets.popitem(last=False)


def _returning(bound: BoundStep, arena: Arena) -> Call:
    """A kernel that returns its results, which are copied to where the plan has them."""
    function, inputs, outputs, types = bound.function, bound.step.inputs, bound.step.outputs, bound.output_types
    assert function is not None  # sized
    options = _workspace(bound, arena)
    expected = [(numpy_dtype(t.dtype), t.static_shape) for t in types]

    def call(env: Environment) -> None:
        results = as_tuple(function(*[None if i is None else env[i] for i in inputs], **options))
        _check_count(results, len(outputs))
        for buffer, result, (dtype, shape) in zip(outputs, results, expected, strict=True):
            _check(result, dtype, shape)
            np.copyto(env[buffer], result)  # type: ignore[arg-type]

    return call


def _sized_late(bound: BoundStep) -> Call:
    """A node whose sizes are only known now: its kernel is bound to those that its operands have."""
    inputs, outputs, kernel = bound.step.inputs, bound.step.outputs, bound.step.kernel

    def call(env: Environment) -> None:
        operands = [None if i is None else env[i] for i in inputs]
        late = bound.late(tuple(None if a is None else type_of(a) for a in operands))
        types = _with_numbers(bound, late.types, operands)
        check_room(bytes_of(types) + (late.workspace or 0), "its result", bound.limit)
        options: dict[str, Any] = {}
        if not kernel.returns:
            options["out"] = _allocate(types)
        if late.workspace is not None:
            options["workspace"] = np.empty(late.workspace, np.uint8)
        results = as_tuple(late.function(*operands, **options))
        if not kernel.returns and options["out"] is not None:
            results = as_tuple(options["out"])
        _check_count(results, len(outputs))
        for buffer, result, tensor, dynamic in zip(outputs, results, types, bound.dynamic, strict=True):
            array = np.asarray(result)
            _check(array, numpy_dtype(tensor.dtype), tensor.static_shape if tensor.is_static else array.shape)
            if dynamic:
                env[buffer] = _owned(array, operands)
            else:
                np.copyto(env[buffer], array)  # type: ignore[arg-type]

    return call


def _with_numbers(
    bound: BoundStep, types: tuple[TensorType, ...], operands: Sequence[Array | None]
) -> tuple[TensorType, ...]:
    """Types that depend on numbers, such as those of a shape operand, inferred from them before the kernel runs."""
    if all(t.is_static for t in types):
        return types
    op, values = bound.step.node.op.absorb(*(None if a is None else constant_value(a) for a in operands))
    found = as_tuple(op.resolve(*values).infer(*values))
    for tensor in found:
        check_possible(tensor)
    return found


def _burying(call: Call, bound: BoundStep, arena: Arena) -> Call:
    """Let go of arrays that no later step reads; in poison mode, make what is left of them unusable."""
    regions = [arena.slice(*region) for region in bound.regions] if bound.poison else []
    if bound.poison and bound.step.workspace[1]:
        regions.append(arena.slice(*bound.step.workspace))
    loose = bound.loose

    def call_and_bury(env: Environment) -> None:
        call(env)
        for region in regions:
            region.fill(POISON)
        for buffer in loose:
            env[buffer] = None

    return call_and_bury


def _workspace(bound: BoundStep, arena: Arena) -> dict[str, Any]:
    return {} if bound.step.kernel.workspace is None else {"workspace": arena.slice(*bound.step.workspace)}


def _allocate(types: Sequence[TensorType]) -> Any:
    """Arrays for the results; None if a size depends on data, or if they hold strings."""
    if not all(t.is_static and t.dtype != "string" for t in types):
        return None
    arrays = tuple(np.empty(t.static_shape, numpy_dtype(t.dtype)) for t in types)
    return arrays[0] if len(arrays) == 1 else arrays


def _owned(array: Array, operands: Sequence[Array | None]) -> Array:
    """The array, or a dense copy if its bytes may belong to an operand or to the arena."""
    shared = array.base is not None or any(array is operand for operand in operands)
    return np.array(array, order="C") if shared or not array.flags.c_contiguous else array


def _check(result: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if result.dtype != dtype or result.shape != shape:
        raise ExecutionError(f"it returned {result.dtype}{list(result.shape)}, expected {dtype}{list(shape)}")


def _check_count(results: tuple[Any, ...], expected: int) -> None:
    if len(results) != expected:
        raise ExecutionError(f"it returned {len(results)} results, expected {expected}")


def _constant(buffer: BufferPlan, plan: Plan) -> Any:
    """The numbers of a constant in the buffer's shape, which an alias of the constant has of its own."""
    return None if buffer.constant is None else plan.resident[buffer.constant].reshape(buffer.type.static_shape)


def _operand_types(plan: Plan, step: Step) -> list[TensorType]:
    return [plan.buffers[i].type for i in step.inputs if i is not None]


def _in_arena(plan: Plan, buffer: int) -> bool:
    return plan.buffers[buffer].storage is Storage.ARENA
