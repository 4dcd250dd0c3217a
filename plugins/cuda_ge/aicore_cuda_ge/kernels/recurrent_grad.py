"""RecurrentGrad: back through the steps of RNN, LSTM and GRU, a launch for each or all of them in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import GRU
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _recurrent_clusters as clusters
from aicore_cuda_ge.kernels._activations import Params
from aicore_cuda_ge.kernels._machine import LAUNCH_SECONDS
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import item_bytes
from aicore_cuda_ge.kernels._recurrent_params import MOST_SEQUENCES, SECONDS_OF_BYTE, layer_params, rounded

_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Walk:
    """Sizes of a recurrent layer that is gone through backwards."""

    op: RecurrentGrad
    dtype: str
    steps: int
    batch: int
    hidden: int
    operands: int

    @property
    def units(self) -> int:
        """Numbers of one state."""
        return self.op.layer.directions * self.batch * self.hidden

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """Of into_r, carried, dc and p_sums in the workspace, in floats."""
        carried = rounded(2 * self.units * self.op.layer.gates)
        dc = carried + rounded(self.units)
        return 0, carried, dc, dc + rounded(self.units)

    @property
    def workspace(self) -> int:
        return 4 * (self.offsets[-1] + rounded(3 * self.units if self.op.peepholes else 1))

    def params(self, constant: bool) -> Params:
        """The struct RecurrentBack."""
        layer = layer_params(
            self.op.layer,
            self.dtype,
            (self.steps, self.batch, self.hidden),
            (self.operands, self.op.n_outputs()),
            (0, 0, 0, 0),
            constant,
        )
        return (*layer, int(self.op.peepholes), *self.offsets)


def walk_of(op: Op, *types: TensorType | None) -> Walk:
    """The layer's sizes. Raises ValueError for another op, or without r and gates."""
    r, gates = (None if t is None else t.static_shape for t in types[:2])
    if not isinstance(op, RecurrentGrad) or r is None or gates is None:
        raise ValueError(f"{type(op).__name__} is no RecurrentGrad with r and gates")
    steps, batch = (gates[2], gates[1]) if op.layer.layout else (gates[1], gates[2])
    dtype = next(t.dtype for t in types if t is not None)
    return Walk(op, dtype, steps, batch, r[2], len(types))


def supports(op: Op, *types: TensorType | None) -> str | None:
    """Refuses open sizes, and those beyond what a launch can count."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    walk = walk_of(op, *types)
    if walk.units * max(walk.op.layer.gates, 3) > _LARGEST:
        return "takes sizes below 2**31"
    return f"takes at most {MOST_SEQUENCES} sequences" if walk.batch > MOST_SEQUENCES else None


def workspace(op: Op, *types: TensorType | None) -> int:
    return walk_of(op, *types).workspace


def bind(op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None]) -> Call:
    """All steps, a launch for each."""
    return compiled("recurrent_back", walk_of(op, *types).params(constants[0] is not None))


def estimate(op: Op, *types: TensorType | None) -> float:
    """Steps follow each other; each reads r once for eight sequences."""
    walk = walk_of(op, *types)
    layer = walk.op.layer
    r_bytes = item_bytes(walk.dtype) * layer.directions * layer.gates * walk.hidden**2
    launches = 2 if isinstance(layer, GRU) and not layer.linear_before_reset else 1
    each = launches * (LAUNCH_SECONDS + 3e-6) + 2 * -(-walk.batch // 8) * r_bytes * SECONDS_OF_BYTE
    return walk.steps * each


def clusters_support(op: Op, *types: TensorType | None) -> str | None:
    return supports(op, *types) or clusters.refusal(walk_of(op, *types).hidden)


def bind_clusters(op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None]) -> Call:
    """All steps in one launch."""
    return compiled("recurrent_back_clusters", walk_of(op, *types).params(constants[0] is not None))


def estimate_clusters(op: Op, *types: TensorType | None) -> float:
    walk = walk_of(op, *types)
    return clusters.seconds(walk.op.layer, walk.steps, walk.batch, walk.hidden, back=True)


def _declared(variant: str) -> Kernel:
    is_steps = variant == "steps"
    decorate = kernel(
        RecurrentGrad,
        device="cuda",
        variant=variant,
        dtypes={"float32", "float16", "bfloat16"} if is_steps else {"float32"},
        supports=supports if is_steps else clusters_support,
        workspace=workspace,
        bind=bind if is_steps else bind_clusters,
        estimate=estimate if is_steps else estimate_clusters,
    )
    return decorate(run_from_plan)


STEPS, CLUSTERS = _declared("steps"), _declared("clusters")
KERNELS: tuple[Kernel, ...] = (STEPS, CLUSTERS)
