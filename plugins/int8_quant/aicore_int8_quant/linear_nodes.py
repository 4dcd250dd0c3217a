"""The nodes that multiply and add: which operand is what, and along which axis a weight has its output channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from aicore.ir import Graph, Node, Op, Value
from aicore.ops.activation import Activation
from aicore.ops.arithmetic import Add
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.matmul import Gemm, MatMul
from aicore_int8_quant.errors import QuantizationError

LINEAR: tuple[type[Op], ...] = (Conv, Gemm, MatMul)
"""Ops that are quantised, with int8 kernels behind them."""


@dataclass(frozen=True)
class LinearNode:
    """A Conv, Gemm or MatMul with what its kernel can take along.

    x, w: the operands that are multiplied; w is a constant, or the second of two tensors of a MatMul.
    bias: a constant vector that the node itself adds, or that follows a MatMul.
    residual: what an Add puts on top; None without.
    activation: the node of an activation behind all of that; None without.
    nodes: the node, then the Adds and the activation, in order.
    """

    node: Node
    x: Value
    w: Value
    bias: Value | None = None
    residual: Value | None = None
    activation: Node | None = None
    nodes: tuple[Node, ...] = field(default=())

    @property
    def name(self) -> str:
        """Of the source node, or of the value that it computes."""
        return node_name(self.node)

    @property
    def result(self) -> Value:
        """What the kernel gives."""
        return self.nodes[-1].outputs[0]


def node_names(node: Node) -> list[str]:
    """Names in the source file of what the node stands for, those that sound like its op first; else its value's."""
    kind = type(node.op).__name__.lower()
    names = sorted(node.origin.names(), key=lambda name: (kind not in name.lower(), name))
    return names or [node.outputs[0].name]


def node_name(node: Node) -> str:
    """How reports call a node; `exclude` takes any of its names."""
    return node_names(node)[0]


def is_depthwise(node: Node) -> bool:
    """Whether each channel is read by weights of its own alone: a Conv of constant weights with as many groups."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if not isinstance(node.op, Conv) or weight is None or weight.constant is None:
        return False
    shape = weight.constant.array.shape
    return node.op.group > 1 and shape[1] == 1 and shape[0] % node.op.group == 0


def channel_axis(op: Op, weight_rank: int) -> int:
    """The axis of a weight's output channels: 0 of Conv, 1 of ConvTranspose, 0 or 1 of Gemm, the last one of MatMul.

    Raises QuantizationError for an op without weights, and for a weight with no such axis.
    """
    match op:
        case Conv():
            return 0
        case ConvTranspose():
            return 1
        case Gemm(transB=transposed):
            return 0 if transposed else 1
        case MatMul() if weight_rank >= 2:
            return weight_rank - 1
        case MatMul():
            raise QuantizationError("a vector of weights has no output channels")
    raise QuantizationError(f"{type(op).__name__} has no weight to quantise")


def check_channel_axis(op: Op, weight_rank: int, axis: int | None) -> None:
    """Raise QuantizationError for scales along any axis but that of the output channels.

    Scales along an axis that is summed could not be taken out of the sum.
    """
    wanted = channel_axis(op, weight_rank)
    if axis is not None and axis % weight_rank != wanted:
        raise QuantizationError(
            f"the weight of {type(op).__name__} has its output channels along axis {wanted}: scales along axis {axis} "
            "would differ within one sum"
        )


def reason_against(node: Node) -> str | None:
    """Why the node is not quantised, or None: what its operands say, before any number is known."""
    op, operands = node.op, node.inputs
    if not isinstance(op, LINEAR):
        return f"no int8 kernel for {type(op).__name__}"
    x, w = operands[0], operands[1]
    if x is None or w is None or x.dtype != "float32":
        return f"its operands are {x.dtype if x else 'absent'}, not float32"
    if isinstance(op, Gemm) and (op.transA or op.alpha != 1 or (op.beta != 1 and len(operands) > 2)):
        return "Gemm with transA, alpha or beta"
    if x.constant is not None:
        return "its first operand is constant"
    if w.constant is None and not isinstance(op, MatMul):
        return "its weight is not constant"
    if min(x.rank or 0, w.rank or 0) < 2:
        return "an operand is a vector or of unknown rank"
    bias = operands[2] if len(operands) > 2 else None
    if bias is not None and (bias.constant is None or _vector(bias) is None):
        return "its bias is no constant vector"
    return None


def linear_nodes(graph: Graph) -> list[LinearNode]:
    """Every node that could be quantised, with what follows it; no node belongs to two of them."""
    walk = _Tails(graph)
    found = [walk.of(node) for node in reversed(graph.nodes) if reason_against(node) is None]
    return found[::-1]


class _Tails:
    """Follows results that one node uses; from the last node back, so that a residual is there before it is added."""

    def __init__(self, graph: Graph) -> None:
        self._users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self._users.setdefault(value, []).append(node)
        self._outputs = {value for _, value in graph.outputs}
        self._taken: set[Node] = set()

    def of(self, node: Node) -> LinearNode:
        x, w, *rest = node.inputs
        assert x is not None  # reason_against saw to it
        assert w is not None
        bias, residual = (rest[0] if rest else None), None
        chain = [node]
        while (following := self._next(chain[-1])) is not None and isinstance(following.op, Add):
            other = following.inputs[1] if following.inputs[0] is chain[-1].outputs[0] else following.inputs[0]
            assert other is not None
            if other.constant is not None and bias is None and residual is None and _is_bias(other, node):
                bias = other
            elif other.constant is None and residual is None and other.type == chain[-1].outputs[0].type:
                residual = other
            else:
                break
            chain.append(following)
        activation = self._activation(chain[-1])
        if activation is not None:
            chain.append(activation)
        self._taken.update(chain)
        return LinearNode(node, x, w, bias, residual, activation, tuple(chain))

    def _activation(self, node: Node) -> Node | None:
        following = self._next(node)
        if following is None or not isinstance(following.op, Activation):
            return None
        return following if sum(v is not None for v in following.inputs) == 1 else None

    def _next(self, node: Node) -> Node | None:
        """The only user of a node's result, if it belongs to no other tail."""
        value = node.outputs[0]
        users = self._users.get(value, [])
        if len(users) != 1 or value in self._outputs or users[0] in self._taken:
            return None
        return users[0] if users[0].inputs.count(value) == 1 else None


def _is_bias(value: Value, node: Node) -> bool:
    """Whether a constant that is added has one number for each output channel."""
    channels = node.outputs[0].shape[-1] if isinstance(node.op, MatMul | Gemm) and node.outputs[0].shape else None
    return channels is not None and isinstance(node.op, MatMul) and _vector(value) == channels


def _vector(value: Value) -> int | None:
    """The length of a constant that is a vector, or has dims of 1 before its last one; None for any other."""
    shape = value.type.static_shape if value.type.is_static else ()
    return shape[-1] if shape and all(dim == 1 for dim in shape[:-1]) else None
