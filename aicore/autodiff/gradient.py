"""From a graph with a loss to the same graph with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aicore.autodiff.backward import backward
from aicore.autodiff.forward import path, ready_for_gradient
from aicore.autodiff.recompute import Recompute, recomputed
from aicore.errors import GraphError
from aicore.ir import FLOATS, Builder, Graph, Value, needed_nodes, numpy_dtype
from aicore.ops.gradients import zeros_like


def grad(graph: Graph, loss: str, wrt: Sequence[str], *, recompute: Recompute = "nothing") -> Graph:
    """The graph with an output `grad.NAME` for each input of `wrt`: the derivative of the loss by it.

    loss: name of an output of floating point and one element.
    wrt: names of inputs of floating point. An input on which the loss does not depend gets zeros.
    recompute: what of the forward pass is computed a second time instead of being kept: see `Recompute`.
    Raises GraphError for names that do not fit, UnsupportedError naming the node for an op without gradient.
    """
    outputs = dict(graph.outputs)
    inputs = {value.name: value for value in graph.inputs}
    if loss not in outputs:
        raise GraphError(f"the graph has no output {loss!r} to be the loss; it has {', '.join(map(repr, outputs))}")
    if isinstance(wrt, str):
        raise GraphError(f"wrt={wrt!r} is one name, wants a sequence of names")
    missing = [name for name in wrt if name not in inputs]
    if missing:
        raise GraphError(f"the graph has no input {missing[0]!r}; it has {', '.join(map(repr, inputs))}")
    if len(set(wrt)) < len(wrt):
        raise GraphError(f"wrt={list(wrt)} names an input twice")
    taken = [f"grad.{name}" for name in wrt if f"grad.{name}" in outputs]
    if taken:
        raise GraphError(f"the graph has an output {taken[0]!r} already")
    builder = Builder()
    builder.nodes.extend(graph.nodes)
    found = gradients(builder, outputs[loss], [inputs[name] for name in wrt], recompute=recompute)
    named = tuple((f"grad.{name}", value) for name, value in zip(wrt, found, strict=True))
    outs = (*graph.outputs, *named)
    # Without gradients of operands that nobody asked for.
    return replace(graph, outputs=outs, nodes=needed_nodes(builder.nodes, [value for _, value in outs]))


def gradients(builder: Builder, loss: Value, wrt: Sequence[Value], *, recompute: Recompute = "nothing") -> list[Value]:
    """Append the backward pass to what was built; returns the derivative of the loss by each value of `wrt`.

    The builder's nodes may be replaced by others that compute the same values.
    Raises GraphError for a loss that is no scalar, UnsupportedError for an op without gradient.
    """
    _check(loss, wrt)
    active = path(builder.nodes, wrt, [loss])
    builder.nodes[:] = ready_for_gradient(builder.nodes, active)
    forward = list(builder.nodes)
    origin = builder.origin
    seed = builder.constant(np.ones((1,) * (loss.rank or 0), numpy_dtype(loss.dtype)), "seed")
    found = backward(builder, forward, {loss: seed}, wrt)
    builder.origin = origin
    results = [zeros_like(builder, value) if g is None else g for value, g in zip(wrt, found, strict=True)]
    if recompute != "nothing":
        backward_nodes = builder.nodes[len(forward) :]
        builder.nodes[len(forward) :] = recomputed(forward, backward_nodes, recompute)
    return results


def _check(loss: Value, wrt: Sequence[Value]) -> None:
    if loss.dtype not in FLOATS:
        raise GraphError(f"the loss %{loss.name} is {loss.dtype}, wants floating point")
    if loss.shape is None or any(dim != 1 for dim in loss.shape):
        raise GraphError(f"the loss is {loss!r}, wants one element; reduce it first")
    for value in wrt:
        if value.dtype not in FLOATS:
            raise GraphError(f"%{value.name} is {value.dtype}: only floating point has a derivative")
