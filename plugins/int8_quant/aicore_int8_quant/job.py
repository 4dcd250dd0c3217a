"""What one quantisation was asked to do, and what it has found so far; each pass reads it and adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.ir import Node, Value
from aicore.plugins import PluginRegistry
from aicore_int8_quant.affine import QParams
from aicore_int8_quant.linear_nodes import LinearNode, node_name
from aicore_int8_quant.observers import NonFinite, Observer, observer_class
from aicore_int8_quant.observers.magnitudes import Magnitudes
from aicore_int8_quant.specs import QSpec

if TYPE_CHECKING:
    from aicore_int8_quant.passes.correction import ChannelMeans  # which needs the job

Array = np.ndarray[Any, Any]
Feeds: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class Options:
    """How to quantise.

    method: kind of observer of activations; see OBSERVERS. method_options: its own options, such as percentile=99.99.
    per_channel: one weight scale for each output channel, instead of one for the tensor.
    exclude: names of nodes that stay in floating point; patterns as of file names.
    non_finite: what NaN and infinity in an activation do; see Observer.
    split_below: a first operand that lies less than so many decibels above the rounding of its codes gets two codes a
        number; None for one code always. 24 dB are four bits.
    correct_biases: take what rounded weights add to a result on average off its bias.
    """

    method: str = "minmax"
    per_channel: bool = True
    exclude: tuple[str, ...] = ()
    non_finite: NonFinite = "raise"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    split_below: float | None = 24.0
    correct_biases: bool = False

    def observer(self, name: str, axis: int | None = None) -> Observer:
        """A new observer for a tensor, or for its channels. Raises CalibrationError for an unknown method or option."""
        return observer_class(self.method)(name, axis, self.non_finite, **self.method_options)


@dataclass
class Job:
    """One quantisation.

    linear: nodes that become int8. specs, observers, params: of activations. weights, biases: codes and parameters.
    magnitudes, means: of first operands. coarse: nodes whose first operand has too few codes, in decibels.
    kept: nodes of LINEAR kind or any other that stay in floating point, and why. notes: what was widened or left.
    """

    options: Options = field(default_factory=Options)
    feeds: Iterable[Feeds] = ()
    registry: PluginRegistry | None = None
    progress: bool = False
    linear: Sequence[LinearNode] = ()
    specs: dict[Value, QSpec] = field(default_factory=dict)
    observers: dict[Value, Observer] = field(default_factory=dict)
    magnitudes: dict[Value, Magnitudes] = field(default_factory=dict)
    coarse: dict[Node, float] = field(default_factory=dict)
    means: dict[Value, ChannelMeans] = field(default_factory=dict)
    params: dict[Value, QParams] = field(default_factory=dict)
    weights: dict[Node, QuantizedWeight] = field(default_factory=dict)
    kept: dict[Node, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def keep(self, node: Node, reason: str) -> None:
        """Leave the node in floating point."""
        self.kept[node] = reason
        self.weights.pop(node, None)

    def note(self, node: Node, text: str) -> None:
        """Report something about a node that is quantised all the same."""
        self.notes.append(f"{type(node.op).__name__} {node_name(node)!r}: {text}")


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A weight and a bias as integers.

    codes: int8, of the shape of the weight. bias: int32 with bias_params, or None: there is none, or it stays float.
    """

    codes: Array
    params: QParams
    bias: Array | None = None
    bias_params: QParams | None = None
