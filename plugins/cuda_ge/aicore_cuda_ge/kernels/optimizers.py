"""Updates of all parameters, and the norm of all gradients, by graph_executor/optimizer: up to 64 tensors a launch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.optimizers import (
    SCALARS,
    AdagradUpdate,
    AdamUpdate,
    GlobalNorm,
    LambUpdate,
    LionUpdate,
    RMSpropUpdate,
    SGDUpdate,
)
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import need_static, run_from_plan, seconds_of, shape_of

Types = Sequence["TensorType | None"]

MOST_TENSORS = 64
"""Of one launch."""
_SMALLEST_CHUNK = 1024
"""Elements that 256 threads take at once."""
_MANY_BLOCKS = 4096
"""More blocks than this only begin and end."""
_NUMBERS = 8
"""Of a formula: see TensorParams in graph_executor/optimizer/tensors.cuh."""
seconds = seconds_of(bytes_per_second=3.5e12, launch_seconds=2e-6)


def _supports(op: Any, *types: TensorType | None) -> str | None:
    if reason := need_static(*types):
        return reason
    wrong = [t.dtype for i, t in enumerate(types) if t is not None and i != 1 and t.dtype != "float32"]
    return f"does not take {wrong[0]}" if wrong else None


def chunk_of(sizes: Sequence[int]) -> int:
    """Elements of a block: few, so that all of a small model are computed at once, and more for a large one."""
    return _SMALLEST_CHUNK * max(1, -(-sum(sizes) // (_SMALLEST_CHUNK * _MANY_BLOCKS)))


def _blocks(sizes: Sequence[int], chunk: int) -> int:
    return sum(-(-size // chunk) for size in sizes)


def _groups(sizes: Sequence[int]) -> Iterator[range]:
    """The tensors of each launch."""
    for start in range(0, len(sizes), MOST_TENSORS):
        yield range(start, min(start + MOST_TENSORS, len(sizes)))


def _sizes(types: Types) -> list[int]:
    return [math.prod(shape_of(t)) for t in types]


def _table(sizes: Sequence[int], chunk: int, decays: int = 0, numbers: Sequence[float] = ()) -> list[int | float]:
    """The struct TensorParams."""
    filled = [float(x) for x in numbers] + [0.0] * (_NUMBERS - len(numbers))
    signed = decays - (1 << 64) if decays >> 63 else decays
    return [len(sizes), chunk, signed, *filled, *sizes, *[0] * (MOST_TENSORS - len(sizes))]


def _bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    sizes = _sizes(types[SCALARS : SCALARS + op.count])
    chunk = chunk_of(sizes)
    name, numbers = _formula(op)
    operands, results = 2 + len(op.slots), 1 + len(op.slots)
    workspace = SCALARS + op.count * (operands + results)
    calls = []
    for group in _groups(sizes):
        if not _blocks([sizes[i] for i in group], chunk):
            continue
        decays = sum(1 << k for k, i in enumerate(group) if op.decay_of(i))
        params = _table([sizes[i] for i in group], chunk, decays, (op.weight_decay, *numbers))
        pick = [0, 1, 2, *(SCALARS + role * op.count + i for role in range(operands + results) for i in group)]
        if isinstance(op, LambUpdate):
            pick.append(workspace)
        calls.append(compiled(name, params, pick=tuple(pick)))
    return tuple(calls)


def _formula(op: Any) -> tuple[str, tuple[float, ...]]:
    """The kernel's name, and the numbers that its formula reads after the weight decay."""
    match op:
        case SGDUpdate():
            return ("update_sgd_momentum" if op.momentum else "update_sgd"), (op.momentum, op.nesterov)
        case RMSpropUpdate():
            name = "update_rmsprop" + ("_centered" if op.centered else "") + ("_momentum" if op.momentum else "")
            return name, (op.alpha, 1 - op.alpha, op.eps, op.momentum)
        case AdagradUpdate():
            return "update_adagrad", (op.lr_decay, op.eps)
        case AdamUpdate():
            return ("update_amsgrad" if op.amsgrad else "update_adam"), (*_moments(op), op.decoupled)
        case LambUpdate():
            return "update_lamb", _moments(op)
        case LionUpdate():
            return "update_lion", (op.beta1, 1 - op.beta1, op.beta2, 1 - op.beta2)
    raise TypeError(f"{op} is no update")


def _moments(op: Any) -> tuple[float, ...]:
    logs = [math.log(beta) if beta else -math.inf for beta in (op.beta1, op.beta2)]
    return 1 - op.beta1, op.beta2, 1 - op.beta2, op.eps, *logs


def _lamb_workspace(op: Any, *types: TensorType | None) -> int:
    """Two float64 for each block of the largest launch, and a float32 for each tensor."""
    sizes = _sizes(types[SCALARS : SCALARS + op.count])
    chunk = chunk_of(sizes)
    return 16 * max(_blocks([sizes[i] for i in group], chunk) for group in _groups(sizes)) + 4 * MOST_TENSORS


def _norm_workspace(op: GlobalNorm, *types: TensorType | None) -> int:
    """A float64 for each block."""
    sizes = _sizes(types)
    return 8 * max(_blocks(sizes, chunk_of(sizes)), 1)


def _norm_supports(op: GlobalNorm, *types: TensorType | None) -> str | None:
    wrong = [t.dtype for t in types if t is not None and t.dtype != "float32"]
    return f"does not take {wrong[0]}" if wrong else need_static(*types)


def _bind_norm(op: GlobalNorm, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    sizes = _sizes(types)
    chunk = chunk_of(sizes)
    result, workspace = len(types), len(types) + 1
    calls, offset = [], 0
    for group in _groups(sizes):
        mine = [sizes[i] for i in group]
        if blocks := _blocks(mine, chunk):
            calls.append(compiled("norm_squares", [offset, *_table(mine, chunk)], pick=(*group, workspace)))
            offset += blocks
    return *calls, compiled("norm_root", (offset,), pick=(workspace, result))


def _update(op: type[Op]) -> Kernel:
    workspace = _lamb_workspace if op is LambUpdate else None
    made = kernel(
        op,
        device="cuda",
        variant="tensors",
        supports=_supports,
        workspace=workspace,
        bind=_bind,
        estimate=seconds,
        inplace=True,
    )
    return made(run_from_plan)


_UPDATES: tuple[type[Op], ...] = (SGDUpdate, RMSpropUpdate, AdagradUpdate, AdamUpdate, LambUpdate, LionUpdate)
KERNELS: tuple[Kernel, ...] = (
    *map(_update, _UPDATES),
    kernel(
        GlobalNorm,
        device="cuda",
        variant="tensors",
        supports=_norm_supports,
        workspace=_norm_workspace,
        bind=_bind_norm,
        estimate=seconds,
    )(run_from_plan),
)
