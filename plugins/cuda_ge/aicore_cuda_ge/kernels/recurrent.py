"""RNN, LSTM and GRU: one matrix product for the inputs of all steps, then a launch for each step, or one for all.

float16 and bfloat16 are multiplied on tensor cores; sums and states stay float32, and results are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _product_times as times
from aicore_cuda_ge.kernels import _recurrent_clusters as clusters
from aicore_cuda_ge.kernels import _tensor_product as on_tensor_cores
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._activations import Params
from aicore_cuda_ge.kernels._machine import LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import item_bytes, on_device
from aicore_cuda_ge.kernels._product import Product
from aicore_cuda_ge.kernels._recurrent_params import MOST_SEQUENCES, SECONDS_OF_BYTE, cell_of, layer_params, rounded
from aicore_cuda_ge.kernels._tensor_product import Operand

_PROJECTION_TILE = "64x64"
_LARGEST = 2**31 - 1
_STEP_SECONDS, _SUM_SECONDS = 1.2e-6, 0.1e-6
"""Of a launch of one step beside its beginning, and of the sums of one gate and sequence: as measured."""


@dataclass(frozen=True)
class Layer:
    """Sizes of a recurrent layer."""

    op: Recurrent
    dtype: str
    steps: int
    batch: int
    features: int
    hidden: int
    operands: int

    @property
    def cell(self) -> int:
        """As RecurrentCell of graph_executor/rnn/recurrent.cuh numbers them."""
        return cell_of(self.op)

    @property
    def projection(self) -> Product:
        """x @ w', for all steps, gates and directions at once."""
        columns = self.op.directions * self.op.gates * self.hidden
        return Product(
            *(self.steps * self.batch, columns, self.features),
            a_row=self.features,
            a_inner=1,
            b_inner=1,
            b_column=self.features,
        )

    @property
    def units(self) -> int:
        """Numbers of one state."""
        return self.op.directions * self.batch * self.hidden

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """Of the states hidden, cell, update and reset_hidden in the workspace, in floats; each a multiple of 16."""
        projected = rounded(self.projection.rows * self.projection.columns)
        unit = rounded(self.units)
        hidden = projected + rounded(2 * self.units)
        return projected, hidden, hidden + unit, hidden + 2 * unit

    @property
    def states_end(self) -> int:
        """Bytes of the workspace that hold float32."""
        return 4 * (self.offsets[-1] + rounded(self.units))

    @property
    def factors(self) -> tuple[Operand, Operand]:
        """x and w of the projection, for tensor cores."""
        x, w = on_tensor_cores.operands_of(self.projection)
        return x, w

    @property
    def workspace(self) -> int:
        """Bytes; behind the states, factors that have to be packed."""
        if self.dtype == "float32":
            return self.states_end
        return self.states_end + sum(f.nbytes(self.dtype) for f in self.factors if not f.is_ready(self.dtype))

    def params(self, constant: bool) -> Params:
        """The struct Recurrent. constant: nothing writes r while a program runs."""
        sizes, arrays = (self.steps, self.batch, self.hidden), (self.operands, self.op.n_outputs())
        return layer_params(self.op, self.dtype, sizes, arrays, self.offsets, constant)


def layer_of(op: Op, *types: TensorType | None) -> Layer:
    """The layer, with activations filled in. Raises ValueError for an op that is none, or lacks an operand."""
    x, w, r = (None if t is None else t.static_shape for t in types[:3])
    if not isinstance(op, Recurrent) or x is None or w is None or r is None:
        raise ValueError(f"{type(op).__name__} is no recurrent layer with x, w and r")
    steps, batch = (x[1], x[0]) if op.layout else (x[0], x[1])
    dtype = next(t.dtype for t in types if t is not None)
    return Layer(op.checked(), dtype, steps, batch, x[2], r[2], len(types))


def supports(op: Op, *types: TensorType | None) -> str | None:
    """Refuses open sizes, and those beyond what a launch can count."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    layer = layer_of(op, *types)
    if max(layer.projection.rows, layer.projection.columns, layer.features, layer.units) > _LARGEST:
        return "takes sizes below 2**31"
    if layer.dtype != "float32" and (reason := tensor.reason_against_machine()):
        return reason
    if layer.dtype != "float32" and layer.features == 0:
        return f"takes at least one feature in {layer.dtype}"
    return f"takes at most {MOST_SEQUENCES} sequences" if layer.batch > MOST_SEQUENCES else None


def workspace(op: Op, *types: TensorType | None) -> int:
    return layer_of(op, *types).workspace


def bind(op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None]) -> tuple[Call, ...]:
    """The projection, if there is anything to project, and the steps."""
    layer = layer_of(op, *types)
    project = _project if layer.dtype == "float32" else _project_narrow
    steps = compiled("recurrent_steps", layer.params(constants[2] is not None))
    return (*project(layer, constants[1]), steps)


def _project(layer: Layer, w: DeviceArray | None) -> tuple[Call, ...]:
    product, plan = layer.projection, _plan(layer.projection)
    name, splits, _ = times.parse(plan)
    params = product.params(_workspace_at(layer), splits=splits, wide=product.reads, constant=w is not None)
    return (compiled(f"gemm_{name}", params),)


def _project_narrow(layer: Layer, w: DeviceArray | None) -> tuple[Call, ...]:
    """Launches that pack x and w, where their rows are no multiples of 16 bytes, and the product."""
    product, dtype, at = layer.projection, layer.dtype, _workspace_at(layer)
    x_rows, w_rows = layer.factors
    inner = tensor.padded(layer.features, dtype)
    calls: list[Call] = []
    extra: tuple[DeviceArray, ...] = ()
    places = (0, 0, 1, 0)
    if not x_rows.is_ready(dtype):  # then w, whose rows are as long, is not ready either
        product = replace(product, a_row=inner, b_column=inner)
        w_byte = layer.states_end + x_rows.nbytes(dtype)
        calls.append(x_rows.pack(dtype, 0, at, layer.states_end))
        places = (at, layer.states_end, at, w_byte)
        if w is None:
            calls.append(w_rows.pack(dtype, 1, at, w_byte))
        else:
            extra = (on_device(w, partial(on_tensor_cores.packed, operand=w_rows, dtype=dtype)),)
            places = (at, layer.states_end, at + 1, 0)
    tail = (tensor.TILES[_PROJECTION_TILE].index, *places, inner)
    params = product.params(at, constant=w is not None)
    return (*calls, compiled(f"recurrent_project_{dtype}", (*params, *tail), extra))


def _workspace_at(layer: Layer) -> int:
    return layer.operands + layer.op.n_outputs()


def estimate(op: Op, *types: TensorType | None) -> float:
    """Steps follow each other; each reads r once for eight sequences, whose gates are then added up among lanes."""
    layer = layer_of(op, *types)
    r_bytes = item_bytes(layer.dtype) * layer.op.directions * layer.op.gates * layer.hidden**2
    launches = 2 if isinstance(layer.op, GRU) and not layer.op.linear_before_reset else 1
    sums = min(layer.batch, 8) * layer.op.gates * _SUM_SECONDS
    each = launches * (LAUNCH_SECONDS + _STEP_SECONDS) + sums + -(-layer.batch // 8) * r_bytes * SECONDS_OF_BYTE
    return _projection_seconds(layer) + layer.steps * each


def _projection_seconds(layer: Layer) -> float:
    product = layer.projection
    if layer.dtype == "float32":
        return times.tiled_seconds(product, _plan(product))
    nbytes = sum(factor.nbytes(layer.dtype) for factor in layer.factors) + 4 * product.rows * product.columns
    work = tensor.Work(layer.dtype, 1, product.rows, product.columns, product.inner, nbytes)
    return tensor.seconds(work, _PROJECTION_TILE, 1)


def _plan(product: Product) -> str:
    """The tile for the projection: no packing before it, and splits only where blocks can add up among themselves."""
    parsed = {plan: times.parse(plan) for plan in times.plans()}
    usable = [p for p, (_, splits, packed) in parsed.items() if not packed and (machine().clusters or splits == 1)]
    return min(usable, key=lambda plan: times.tiled_seconds(product, plan))


def clusters_support(op: Op, *types: TensorType | None) -> str | None:
    return supports(op, *types) or clusters.refusal(layer_of(op, *types).hidden)


def bind_clusters(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None]
) -> tuple[Call, ...]:
    """The projection, and all steps in one launch."""
    layer = layer_of(op, *types)
    steps = compiled("recurrent_clusters", layer.params(constants[2] is not None))
    return (*_project(layer, constants[1]), steps)


def estimate_clusters(op: Op, *types: TensorType | None) -> float:
    layer = layer_of(op, *types)
    return _projection_seconds(layer) + clusters.seconds(layer.op, layer.steps, layer.batch, layer.hidden)


def _kernels_of(op: type[Op]) -> tuple[Kernel, Kernel]:
    steps = kernel(
        op,
        device="cuda",
        variant="steps",
        dtypes={"float32", "float16", "bfloat16"},
        supports=supports,
        workspace=workspace,
        bind=bind,
        estimate=estimate,
    )
    in_clusters = kernel(
        op,
        device="cuda",
        variant="clusters",
        dtypes={"float32"},
        supports=clusters_support,
        workspace=workspace,
        bind=bind_clusters,
        estimate=estimate_clusters,
    )
    return steps(run_from_plan), in_clusters(run_from_plan)


KERNELS: tuple[Kernel, ...] = tuple(chain.from_iterable(map(_kernels_of, (RNN, LSTM, GRU))))
