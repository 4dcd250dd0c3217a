"""20 steps of each optimiser beside a plain float64 implementation and PyTorch's; clipping; what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ConfigError, InferenceError
from aicore.ir import Builder, Graph, TensorType
from aicore.nn.optimizers import LAMB, OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Lion, Optimizer, RMSprop, optimizer
from aicore.nn.schedules import StepDecay
from aicore.ops.optimizers import AdamUpdate, GlobalNorm, SGDUpdate

Array = np.ndarray[Any, Any]
SHAPES = ((4, 3), (3,), ())
NAMES = ("dense.weight", "dense.bias", "scale")
STEPS = 20
Update = Callable[[int, Array, Array, dict[str, Array]], Array]
"""(step, parameter, gradient, what is kept) -> the new parameter."""


def update_graph(chosen: Optimizer, dtype: str = "float32") -> Graph:
    """(learning rate, step, parameters, gradients, slots) -> (parameters, slots)."""
    op = Builder()
    rate, step = op.input("rate", "float32", ()), op.input("step", "int64", ())
    parameters = [op.input(name, dtype, shape) for name, shape in zip(NAMES, SHAPES, strict=True)]
    gradients = [op.input(f"grad.{p.name}", p.dtype, p.shape) for p in parameters]
    slots = [{s: op.input(f"{p.name}.{s}", p.dtype, p.shape) for s in chosen.slots(p.type)} for p in parameters]
    scheduled = chosen.rate(op, step)
    new, kept = chosen.build(op, rate if scheduled is None else scheduled, step, None, parameters, gradients, slots)
    outputs = {p.name: value for p, value in zip(parameters, new, strict=True)}
    for p, own in zip(parameters, kept, strict=True):
        outputs |= {f"{p.name}.{slot}": value for slot, value in own.items()}
    inputs = [*([rate] if scheduled is None else []), step, *parameters, *gradients]
    return op.graph([*inputs, *(value for own in slots for value in own.values())], outputs)


def trained(chosen: Optimizer, start: list[Array], gradients: list[list[Array]]) -> list[Array]:
    """The parameters after as many steps as there are gradients."""
    program = aicore.compile(update_graph(chosen))
    held = dict(zip(NAMES, start, strict=True))
    for name in NAMES:
        for slot, initial in chosen.slots(TensorType("float32", held[name].shape)).items():
            held[f"{name}.{slot}"] = np.full(held[name].shape, initial, np.float32)
    fed = (
        {}
        if chosen.rate(Builder(), Builder().input("step", "int64", ())) is not None
        else {"rate": np.float32(chosen.initial_rate)}
    )
    for step, given in enumerate(gradients, 1):
        found = {f"grad.{name}": g for name, g in zip(NAMES, given, strict=True)}
        held = dict(program.run({**fed, "step": np.array(step), **held, **found}))
    return [held[name] for name in NAMES]


def problem() -> tuple[list[Array], list[list[Array]]]:
    """Where to start, and gradients of 20 steps."""
    rng = np.random.default_rng(7)
    start, *gradients = [[np.array(rng.normal(size=shape), np.float32) for shape in SHAPES] for _ in range(STEPS + 1)]
    return start, gradients


def sgd(lr: float = 1e-3, mu: float = 0.0, nesterov: bool = False, wd: float = 0.0) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        g = g + wd * p
        v = kept["v"] = mu * kept.get("v", 0) + g
        return p - lr * (g + mu * v if nesterov else v)

    return update


def rmsprop(lr: float, alpha: float, eps: float, mu: float, centered: bool) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        s = kept["s"] = alpha * kept.get("s", 0) + (1 - alpha) * g**2
        mean = kept["mean"] = alpha * kept.get("mean", 0) + (1 - alpha) * g
        change = g / (np.sqrt(s - mean**2 if centered else s) + eps)
        v = kept["v"] = mu * kept.get("v", 0) + change
        return p - lr * v

    return update


def adagrad(lr: float, decay: float, start: float) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        s = kept["s"] = kept.get("s", start) + g**2
        return p - lr / (1 + (t - 1) * decay) * g / (np.sqrt(s) + 1e-10)

    return update


def moments(t: int, g: Array, kept: dict[str, Array], b1: float, b2: float) -> tuple[Array, Array]:
    m = kept["m"] = b1 * kept.get("m", 0) + (1 - b1) * g
    v = kept["v"] = b2 * kept.get("v", 0) + (1 - b2) * g**2
    return m / (1 - b1**t), v / (1 - b2**t)


def adam(
    lr: float = 1e-3,
    b1: float = 0.9,
    b2: float = 0.999,
    coupled: float = 0.0,
    decoupled: float = 0.0,
    ams: bool = False,
) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        m, v = moments(t, g + coupled * p, kept, b1, b2)
        if ams:
            most = kept["most"] = np.maximum(kept.get("most", 0), kept["v"])
            v = most / (1 - b2**t)
        return p - lr * decoupled * p - lr * m / (np.sqrt(v) + 1e-8)

    return update


def lamb(lr: float, wd: float) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        m, v = moments(t, g, kept, 0.9, 0.999)
        r = m / (np.sqrt(v) + 1e-6) + wd * p
        return p - lr * np.sqrt((p**2).sum()) / np.sqrt((r**2).sum()) * r

    return update


def lion(lr: float, wd: float) -> Update:
    def update(t: int, p: Array, g: Array, kept: dict[str, Array]) -> Array:
        m = kept.get("m", 0 * g)
        kept["m"] = 0.99 * m + 0.01 * g
        return p - lr * (np.sign(0.9 * m + 0.1 * g) + wd * p)

    return update


CASES: list[tuple[Optimizer, Update]] = [
    (SGD(), sgd()),
    (SGD(0.1, weight_decay=0.1), sgd(0.1, wd=0.1)),
    (SGD(0.1, momentum=0.9), sgd(0.1, 0.9)),
    (SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1), sgd(0.1, 0.9, True, 0.1)),
    (RMSprop(), rmsprop(1e-2, 0.99, 1e-8, 0, False)),
    (RMSprop(1e-3, alpha=0.9, momentum=0.5, centered=True, eps=1e-3), rmsprop(1e-3, 0.9, 1e-3, 0.5, True)),
    (Adagrad(), adagrad(1e-2, 0, 0)),
    (Adagrad(0.1, lr_decay=0.1, initial_accumulator_value=0.5), adagrad(0.1, 0.1, 0.5)),
    (Adam(), adam()),
    (Adam(1e-2, betas=(0.8, 0.95), weight_decay=0.1), adam(1e-2, 0.8, 0.95, coupled=0.1)),
    (Adam(1e-2, amsgrad=True), adam(1e-2, ams=True)),
    (AdamW(1e-2), adam(1e-2, decoupled=1e-2)),
    (LAMB(1e-2), lamb(1e-2, 0)),
    (LAMB(1e-2, weight_decay=0.1), lamb(1e-2, 0.1)),
    (Lion(), lion(1e-4, 0)),
    (Lion(1e-2, weight_decay=0.1), lion(1e-2, 0.1)),
]


@pytest.mark.parametrize(("chosen", "update"), CASES, ids=lambda x: repr(x) if isinstance(x, Optimizer) else "")
def test_twenty_steps(chosen: Optimizer, update: Update) -> None:
    start, gradients = problem()
    found = trained(chosen, start, gradients)
    for i, got in enumerate(found):
        p, kept = start[i].astype(np.float64), dict[str, Array]()
        for step, given in enumerate(gradients, 1):
            p = update(step, p, given[i].astype(np.float64), kept)
        np.testing.assert_allclose(got, p, rtol=1e-5, atol=1e-7)


def torch_cases() -> Iterable[tuple[Optimizer, str, dict[str, Any]]]:
    yield SGD(0.1), "SGD", {"lr": 0.1}
    yield SGD(0.1, momentum=0.9, weight_decay=0.1), "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    yield SGD(0.1, momentum=0.9, nesterov=True), "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    yield RMSprop(), "RMSprop", {}
    yield (
        RMSprop(1e-3, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1),
        "RMSprop",
        {"lr": 1e-3, "alpha": 0.9, "momentum": 0.5, "centered": True, "weight_decay": 0.1},
    )
    yield Adagrad(), "Adagrad", {}
    yield (
        Adagrad(0.1, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.1),
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1},
    )
    yield Adam(), "Adam", {}
    yield Adam(weight_decay=0.1, amsgrad=True), "Adam", {"weight_decay": 0.1, "amsgrad": True}
    yield AdamW(), "AdamW", {}
    yield AdamW(1e-2, amsgrad=True, betas=(0.8, 0.95)), "AdamW", {"lr": 1e-2, "amsgrad": True, "betas": (0.8, 0.95)}


@pytest.mark.parametrize(("chosen", "name", "settings"), list(torch_cases()), ids=repr)
def test_twenty_steps_of_pytorch(chosen: Optimizer, name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    start, gradients = problem()
    parameters = [torch.nn.Parameter(torch.from_numpy(np.array(p))) for p in start]
    theirs = getattr(torch.optim, name)(parameters, **settings)
    for given in gradients:
        for parameter, g in zip(parameters, given, strict=True):
            parameter.grad = torch.from_numpy(np.array(g))
        theirs.step()
    for ours, parameter in zip(trained(chosen, start, gradients), parameters, strict=True):
        np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_clipping_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    start, gradients = problem()
    parameters = [torch.nn.Parameter(torch.from_numpy(np.array(p))) for p in start]
    for parameter, g in zip(parameters, gradients[0], strict=True):
        parameter.grad = torch.from_numpy(np.array(g))
    torch.nn.utils.clip_grad_norm_(parameters, 1.5)
    torch.optim.SGD(parameters, lr=1.0).step()
    ours = trained(SGD(1.0, global_clipnorm=1.5), start, gradients[:1])
    for got, parameter in zip(ours, parameters, strict=True):
        np.testing.assert_allclose(got, parameter.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_decay_leaves_out_what_it_is_told() -> None:
    start, gradients = problem()
    found = trained(SGD(0.1, weight_decay=0.5, no_decay=("*.bias", "sc*")), start, gradients[:1])
    for got, p, g, decay in zip(found, start, gradients[0], (0.5, 0, 0), strict=True):
        np.testing.assert_allclose(got, p - 0.1 * (g + decay * p), rtol=1e-6, atol=1e-7)


def test_a_schedule_sets_the_rate() -> None:
    start, gradients = problem()
    (found, *_) = trained(SGD(StepDecay(1.0, 2, 0.5)), start, gradients[:4])
    moved = sum(rate * given[0] for rate, given in zip((1, 1, 0.5, 0.5), gradients, strict=False))
    np.testing.assert_allclose(found, start[0] - moved, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [None, 0.5])
def test_clipping(scale: float | None) -> None:
    """By value, then each by its norm, then all by theirs."""
    op = Builder()
    given = [np.array([3.0, -0.5], np.float32), np.array([0.1], np.float32), np.array([0.0], np.float32)]
    inputs = [op.input(f"g{i}", "float32", g.shape) for i, g in enumerate(given)]
    factor = None if scale is None else op.constant(np.float32(scale))
    chosen = SGD(clipvalue=2.0, clipnorm=1.0, global_clipnorm=0.75)
    clipped, left = chosen.clipped(op, inputs, factor)
    assert left is not None
    outputs = {f"c{i}": op.Mul(g, left) for i, g in enumerate(clipped)}
    found = aicore.compile(op.graph(inputs, outputs)).run({f"g{i}": g for i, g in enumerate(given)})
    scaled = [g.astype(np.float64) * (scale or 1) for g in given]
    limited = [np.clip(g, -2, 2) for g in scaled]
    limited = [g / max(np.sqrt((g**2).sum()), 1) for g in limited]
    norm = np.sqrt(sum((g**2).sum() for g in limited))
    for i, g in enumerate(limited):
        np.testing.assert_allclose(found[f"c{i}"], g * min(1, 0.75 / (norm + 1e-6)), rtol=1e-6)


def test_the_global_norm_takes_the_scale_into_account() -> None:
    op = Builder()
    g = op.input("g", "float32", (2,))
    _, left = SGD(global_clipnorm=1.0).clipped(op, [g], op.constant(np.float32(0.1)))
    program = aicore.compile(op.graph([g], {"scale": left}))  # type: ignore[dict-item]
    np.testing.assert_allclose(program.run({"g": np.float32([3, 4])})["scale"], 0.1, rtol=1e-6)  # 0.1 * 5 < 1
    np.testing.assert_allclose(program.run({"g": np.float32([30, 40])})["scale"], 0.1 / 5, rtol=1e-5)
    assert np.isnan(program.run({"g": np.float32([np.nan, 4])})["scale"])


def test_float16_is_computed_in_float32() -> None:
    """(1 - beta2) g^2 is 1e-11 here, and the bias correction makes 1e-8 of it: zeros in float16."""
    op = Builder()
    rate, step = op.input("rate", "float32", ()), op.input("step", "int64", ())
    tensors = [op.input(name, "float16", (1,)) for name in ("p", "g", "m", "v")]
    new, *_ = op.apply(AdamUpdate(), rate, step, None, *tensors)
    program = aicore.compile(op.graph([rate, step, *tensors], {"p": new}))
    zero, g = np.zeros(1, np.float16), np.full(1, 1e-4, np.float16)
    found = program.run({"rate": np.float32(0.5), "step": np.array(1), "p": zero, "g": g, "m": zero, "v": zero})["p"]
    np.testing.assert_allclose(found, [-0.5], rtol=1e-3)


def test_names() -> None:
    assert optimizer("adam") == Adam() == optimizer("Adam")
    assert optimizer("nesterov") == SGD(momentum=0.9, nesterov=True)
    chosen = Lion(0.1)
    assert optimizer(chosen) is chosen
    for wrong in ("adamm", 3):
        with pytest.raises(ConfigError, match=r"is none of sgd, momentum, .*, lion, and no Optimizer"):
            optimizer(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_defaults_build(name: str) -> None:
    assert {value.type for _, value in update_graph(OPTIMIZERS[name], "float64").outputs} <= {
        TensorType("float64", shape) for shape in SHAPES
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-1.0), "SGD: learning_rate -1.0 is negative"),
        (lambda: SGD("fast"), "'fast' is no learning rate"),  # type: ignore[arg-type]
        (lambda: SGD(float("inf")), "inf is no learning rate"),
        (lambda: SGD(1e39), "is no learning rate"),
        (lambda: SGD(weight_decay=-1), "weight_decay -1 is no finite number from 0"),
        (lambda: SGD(weight_decay=float("inf")), "weight_decay inf is no finite number from 0"),
        (lambda: SGD(no_decay="*.bias"), "is one text, wants several"),  # type: ignore[arg-type]
        (lambda: Adam(clipnorm=0), "Adam: clipnorm 0 is not above 0"),
        (lambda: Adam(clipnorm=float("inf")), "Adam: clipnorm inf is not above 0, or not finite"),
        (lambda: SGD(momentum=-0.1), "momentum -0.1 is negative"),
        (lambda: SGD(nesterov=True), "nesterov needs a momentum"),
        (lambda: RMSprop(alpha=1.0), r"alpha 1.0 is not from 0 to below 1"),
        (lambda: RMSprop(eps=-1), "eps or momentum is negative"),
        (lambda: Adagrad(lr_decay=-1), "lr_decay, initial_accumulator_value or eps is negative"),
        (lambda: Adam(betas=(0.9, 1.0)), "betas"),
        (lambda: Adam(betas=0.9), "betas 0.9 are not two numbers"),  # type: ignore[arg-type]
        (lambda: Adam(eps=-1), "eps -1 is negative"),
        (lambda: Lion(betas=(0.9,)), "betas"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_refused(make: Callable[[], Optimizer], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_what_does_not_say_its_op() -> None:
    with pytest.raises(NotImplementedError, match="Optimizer does not say which op it is"):
        Optimizer().slots(TensorType("float32", (1,)))


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (SGDUpdate(), [(2,)], r"has 1 tensors, wants 2: 1 each of parameters, gradients"),
        (
            SGDUpdate(momentum=0.9),
            [(2,), (2,)],
            "has 2 tensors, wants 3: 1 each of parameters, gradients, momentum_buffer",
        ),
        (SGDUpdate(), [(2,), (3,)], r"%x1 is \(3,\), and the parameter %x0 is \(2,\)"),
        (SGDUpdate(count=0), [], "count 0 is below 1"),
        (SGDUpdate(decays=(True, False)), [(2,), (2,)], "decays has 2 entries for 1 tensors"),
        (SGDUpdate(nesterov=True), [(2,), (2,)], "nesterov needs a momentum"),
    ],
)
def test_operands_that_do_not_fit(op: Any, shapes: list[Any], message: str) -> None:
    builder = Builder()
    tensors = [builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(InferenceError, match=message):
        builder.apply(op, builder.input("lr", "float32", ()), builder.input("t", "int64", ()), None, *tensors)


def test_scalars_that_do_not_fit() -> None:
    op = Builder()
    rate, step, x = op.input("lr", "float32", ()), op.input("t", "int64", ()), op.input("x", "float32", (2,))
    with pytest.raises(InferenceError, match="has element type float32, wants one of int64"):
        op.apply(SGDUpdate(), rate, rate, None, x, x)
    with pytest.raises(InferenceError, match="has rank 1, wants 0"):
        op.apply(SGDUpdate(), x, step, None, x, x)
    with pytest.raises(InferenceError, match="different dtypes"):
        op.apply(SGDUpdate(), rate, step, None, x, op.input("g", "float64", (2,)))
    with pytest.raises(InferenceError, match="takes one operand or more"):
        op.apply(GlobalNorm())
