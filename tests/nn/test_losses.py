"""Losses beside their formulas in float64 and PyTorch, their gradients beside differences, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ConfigError, InferenceError
from aicore.ir import Builder, Graph
from aicore.nn.losses import (
    LOSSES,
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    CosineSimilarity,
    Hinge,
    Huber,
    KLDivergence,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
    loss_of,
)

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 3))
Y = RNG.normal(size=(4, 3))
Q = RNG.dirichlet(np.ones(3), 4)
P = RNG.dirichlet(np.ones(3), 4)
HOT = np.eye(3)[[2, 0, 1, 1]]
BITS = np.array([[0.0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1]])
CLASSES = np.array([2, 0, 1, 1])
SEQUENCE = RNG.normal(size=(2, 5, 3))
STEPS = np.array([[2, 0, 1, -1, -1], [1, 1, -1, 0, 2]])


def graph_of(loss: Loss, x: Array, y: Array, dtype: str) -> Graph:
    op = Builder()
    prediction = op.input("x", dtype, x.shape)
    target = op.input("y", dtype if y.dtype.kind == "f" else str(y.dtype), y.shape)
    each = loss.build(op, prediction, target)
    total = op.ReduceMean(each, keepdims=0)
    return aicore.grad(op.graph([prediction, target], {"each": each, "loss": total}), "loss", ["x"])


def run(loss: Loss, x: Array, y: Array, dtype: str = "float64") -> dict[str, Array]:
    y = y.astype(dtype) if y.dtype.kind == "f" else y
    return dict(aicore.compile(graph_of(loss, x, y, dtype)).run({"x": x.astype(dtype), "y": y}))


def softmax(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x)
    return powers / powers.sum(axis, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def entropy(q: Array, p: Array) -> Array:
    return -(q * np.log(p)).sum(-1)


def huber(e: Array, delta: float) -> Array:
    return np.where(np.abs(e) <= delta, e**2 / 2, delta * (np.abs(e) - delta / 2))


def cosine(x: Array, y: Array) -> Array:
    return -(x * y).sum(-1) / np.sqrt((x**2).sum(-1) * (y**2).sum(-1))


def picked(x: Array, classes: Array) -> Array:
    return -np.log(np.take_along_axis(softmax(x), classes[..., None], -1)[..., 0])


BY_FORMULA: dict[str, tuple[Loss, Array, Array, Array]] = {
    "mse": (MeanSquaredError(), X, Y, ((X - Y) ** 2).mean(1)),
    "mse, summed": (MeanSquaredError(reduction="sum"), X, Y, ((X - Y) ** 2).sum(1)),
    "mse, images": (MeanSquaredError(), SEQUENCE, SEQUENCE[::-1], ((SEQUENCE - SEQUENCE[::-1]) ** 2).mean((1, 2))),
    "mse, a column and a vector": (MeanSquaredError(), X[:, :1], Y[:, 0], (X[:, 0] - Y[:, 0]) ** 2),
    "mse, integers": (MeanSquaredError(), X[:, 0], CLASSES, (X[:, 0] - CLASSES) ** 2),
    "mae": (MeanAbsoluteError(), X, Y, np.abs(X - Y).mean(1)),
    "huber": (Huber(), X, Y, huber(X - Y, 1).mean(1)),
    "huber 0.3": (Huber(0.3), X, Y, huber(X - Y, 0.3).mean(1)),
    "bce": (BinaryCrossentropy(), X, BITS, -(BITS * np.log(sigmoid(X)) + (1 - BITS) * np.log(sigmoid(-X))).mean(1)),
    "bce of probabilities": (
        BinaryCrossentropy(from_logits=False),
        P,
        BITS,
        -(BITS * np.log(P) + (1 - BITS) * np.log(1 - P)).mean(1),
    ),
    "bce, smoothed": (
        BinaryCrossentropy(label_smoothing=0.2),
        X,
        BITS,
        -((BITS * 0.8 + 0.1) * np.log(sigmoid(X)) + (0.9 - BITS * 0.8) * np.log(sigmoid(-X))).mean(1),
    ),
    "cce": (CategoricalCrossentropy(), X, Q, entropy(Q, softmax(X))),
    "cce, smoothed": (CategoricalCrossentropy(label_smoothing=0.3), X, HOT, entropy(HOT * 0.7 + 0.1, softmax(X))),
    "cce of probabilities": (CategoricalCrossentropy(from_logits=False), P, Q, entropy(Q, P)),
    "cce of probabilities, smoothed": (
        CategoricalCrossentropy(from_logits=False, label_smoothing=0.3),
        P,
        HOT,
        entropy(HOT * 0.7 + 0.1, P),
    ),
    "cce, axis 1": (
        CategoricalCrossentropy(axis=1),
        SEQUENCE.transpose(0, 2, 1),
        softmax(-SEQUENCE).transpose(0, 2, 1),
        entropy(softmax(-SEQUENCE), softmax(SEQUENCE)).mean(1),
    ),
    "sparse": (SparseCategoricalCrossentropy(), X, CLASSES, picked(X, CLASSES)),
    "sparse, int32 column": (SparseCategoricalCrossentropy(), X, CLASSES[:, None].astype(np.int32), picked(X, CLASSES)),
    "sparse, uint8": (SparseCategoricalCrossentropy(), X, CLASSES.astype(np.uint8), picked(X, CLASSES)),
    "sparse of probabilities": (SparseCategoricalCrossentropy(from_logits=False), P, CLASSES, entropy(HOT, P)),
    "sparse, sequences": (
        SparseCategoricalCrossentropy(),
        SEQUENCE,
        np.maximum(STEPS, 0),
        picked(SEQUENCE, np.maximum(STEPS, 0)).mean(1),
    ),
    "sparse, ignored steps": (
        SparseCategoricalCrossentropy(ignore_index=-1),
        SEQUENCE,
        STEPS,
        (picked(SEQUENCE, np.maximum(STEPS, 0)) * (STEPS >= 0)).sum(1) / (STEPS >= 0).sum(1),
    ),
    "sparse, ignored steps of probabilities": (
        SparseCategoricalCrossentropy(from_logits=False, ignore_index=-1),
        softmax(SEQUENCE),
        STEPS,
        (picked(SEQUENCE, np.maximum(STEPS, 0)) * (STEPS >= 0)).sum(1) / (STEPS >= 0).sum(1),
    ),
    "sparse, ignored steps, summed": (
        SparseCategoricalCrossentropy(ignore_index=-1, reduction="sum"),
        SEQUENCE,
        STEPS,
        (picked(SEQUENCE, np.maximum(STEPS, 0)) * (STEPS >= 0)).sum(1),
    ),
    "sparse, all ignored": (SparseCategoricalCrossentropy(ignore_index=7), SEQUENCE, STEPS * 0 + 7, np.zeros(2)),
    "sparse, ignored samples": (
        SparseCategoricalCrossentropy(ignore_index=1),
        X,
        CLASSES,
        picked(X, CLASSES) * [1, 1, 0, 0],
    ),
    "hinge, 0 and 1": (Hinge(), X, BITS, np.maximum(0, 1 - (2 * BITS - 1) * X).mean(1)),
    "hinge, -1 and 1": (Hinge(), X, 2 * BITS - 1, np.maximum(0, 1 - (2 * BITS - 1) * X).mean(1)),
    "categorical hinge": (
        CategoricalHinge(),
        X,
        HOT,
        np.maximum(0, 1 + ((1 - HOT) * X).max(1) - (HOT * X).sum(1)),
    ),
    "kl": (KLDivergence(), X, Q, (Q * np.log(Q / softmax(X))).sum(1)),
    "kl of probabilities": (KLDivergence(from_logits=False), P, Q, (Q * np.log(Q / P)).sum(1)),
    "kl, zeros": (KLDivergence(), X, HOT, picked(X, CLASSES)),
    "cosine": (CosineSimilarity(), X, Y, cosine(X, Y)),
    "cosine, sequences": (CosineSimilarity(), SEQUENCE, -SEQUENCE[::-1], cosine(SEQUENCE, -SEQUENCE[::-1]).mean(1)),
}


@pytest.mark.parametrize("name", BY_FORMULA)
def test_by_formula(name: str) -> None:
    loss, x, y, expected = BY_FORMULA[name]
    found = run(loss, x, y)
    np.testing.assert_allclose(found["each"], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["loss"], expected.mean(), rtol=1e-9, atol=1e-12)
    direction = np.random.default_rng(0).normal(size=x.shape)
    ends = [run(loss, x + step * direction, y)["loss"] for step in (-1e-5, 1e-5)]
    slope = (ends[1] - ends[0]) / 2e-5
    np.testing.assert_allclose((found["grad.x"] * direction).sum(), slope, rtol=1e-6, atol=1e-9)
    narrow = run(loss, x, y, "float32")
    assert narrow["each"].dtype == np.float32
    np.testing.assert_allclose(narrow["each"], expected, rtol=2e-5, atol=1e-6)


TORCH: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mse": lambda f, x, y: f.mse_loss(x, y),
    "mae": lambda f, x, y: f.l1_loss(x, y),
    "huber 0.3": lambda f, x, y: f.huber_loss(x, y, delta=0.3),
    "bce": lambda f, x, y: f.binary_cross_entropy_with_logits(x, y),
    "bce of probabilities": lambda f, x, y: f.binary_cross_entropy(x, y),
    "cce": lambda f, x, y: f.cross_entropy(x, y),
    "cce, smoothed": lambda f, x, y: f.cross_entropy(x, y, label_smoothing=0.3),
    "cce, axis 1": lambda f, x, y: f.cross_entropy(x, y),
    "sparse": lambda f, x, y: f.cross_entropy(x, y),
    "kl": lambda f, x, y: f.kl_div(f.log_softmax(x, -1), y, reduction="batchmean"),
    "kl, zeros": lambda f, x, y: f.kl_div(f.log_softmax(x, -1), y, reduction="batchmean"),
    "cosine": lambda f, x, y: -f.cosine_similarity(x, y).mean(),
}


@pytest.mark.parametrize("name", TORCH)
def test_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    loss, x, y, _ = BY_FORMULA[name]
    prediction = torch.from_numpy(x.copy()).requires_grad_()
    theirs = TORCH[name](torch.nn.functional, prediction, torch.from_numpy(y.copy()))
    theirs.backward()
    found = run(loss, x, y)
    np.testing.assert_allclose(found["loss"], theirs.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(found["grad.x"], prediction.grad.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", [BinaryCrossentropy(), CategoricalCrossentropy()], ids=repr)
def test_large_logits_stay_finite(loss: Loss) -> None:
    """Right by far: no loss. Wrong by far: the distance, and a gradient of its full size."""
    found = run(loss, np.array([[200.0, -200], [-200, 200]]), np.array([[1.0, 0], [1, 0]]), "float32")
    np.testing.assert_allclose(found["each"], [0, 200 if isinstance(loss, BinaryCrossentropy) else 400], atol=1e-30)
    size = 0.25 if isinstance(loss, BinaryCrossentropy) else 0.5
    np.testing.assert_allclose(found["grad.x"], [[0, 0], [-size, size]], atol=1e-30)


def test_gradients_at_a_logit_of_zero() -> None:
    """Where every model starts whose last weights are zeros: no kink."""
    found = run(BinaryCrossentropy(), np.zeros((1, 2)), np.array([[1.0, 0]]))
    np.testing.assert_allclose(found["grad.x"], [[-0.25, 0.25]])


def test_probabilities_of_zero_stay_finite() -> None:
    found = run(CategoricalCrossentropy(from_logits=False), np.array([[0.0, 1]]), np.array([[1.0, 0]]))
    np.testing.assert_allclose(found["each"], [-np.log(1e-7)])
    found = run(CosineSimilarity(), np.zeros((1, 3)), np.ones((1, 3)))
    np.testing.assert_array_equal(found["each"], [0])
    assert np.isfinite(found["grad.x"]).all()


def test_names() -> None:
    assert loss_of("mse") == MeanSquaredError() == loss_of("MSE")
    assert loss_of("cross_entropy") == SparseCategoricalCrossentropy()
    chosen = Huber(2.0)
    assert loss_of(chosen) is chosen
    for wrong in ("mean", 3):
        with pytest.raises(ConfigError, match=r"is none of mse, .*, cosine_similarity, and no Loss"):
            loss_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_builds(name: str) -> None:
    sparse = isinstance(LOSSES[name], SparseCategoricalCrossentropy)
    graph = graph_of(LOSSES[name], X, CLASSES if sparse else HOT, "float16")
    assert [value.dtype for _, value in graph.outputs] == ["float16"] * 3


@pytest.mark.parametrize("name", LOSSES)
def test_open_batch(name: str) -> None:
    op = Builder()
    sparse = isinstance(LOSSES[name], SparseCategoricalCrossentropy)
    x = op.input("x", "float32", ("batch", 3))
    y = op.input("y", "int64", ("batch",)) if sparse else op.input("y", "float32", ("batch", 3))
    each = LOSSES[name].build(op, x, y)
    graph = op.graph([x, y], {"each": each, "loss": op.ReduceMean(each, keepdims=0)})
    program = aicore.compile(aicore.grad(graph, "loss", ["x"]))
    for count in (4, 2):
        target = CLASSES if sparse else HOT
        found = program.run(
            {"x": X[:count].astype(np.float32), "y": target[:count].astype(np.int64 if sparse else np.float32)}
        )
        expected = run(LOSSES[name], X[:count], target[:count])
        np.testing.assert_allclose(found["each"], expected["each"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["grad.x"], expected["grad.x"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "x", "y", "message"),
    [
        (MeanSquaredError(), X, Y[:, :2], "the shapes differ"),
        (MeanSquaredError(), X, Y[:, 0], "the shapes differ"),
        (MeanSquaredError(), X[:, 0], Y[:, :1], "the shapes differ"),
        (MeanSquaredError(), CLASSES, CLASSES, "predictions are int64, want floating point"),
        (MeanSquaredError(), np.array(1.0), np.array(1.0), r"want \(batch, ...\)"),
        (SparseCategoricalCrossentropy(), X, Q, "want class indices; see CategoricalCrossentropy"),
        (SparseCategoricalCrossentropy(), X, STEPS, "want the shape of predictions"),
        (SparseCategoricalCrossentropy(axis=0), X, CLASSES, "have no axis 0 for classes beside the batch"),
        (CategoricalCrossentropy(axis=2), X, Q, "have no axis 2"),
    ],
    ids=repr,
)
def test_operands_that_do_not_fit(loss: Loss, x: Array, y: Array, message: str) -> None:
    op = Builder()
    with pytest.raises(ConfigError, match=f"{type(loss).__name__}: .*{message}"):
        loss.build(op, op.input("x", str(x.dtype), x.shape), op.input("y", str(y.dtype), y.shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MeanSquaredError(reduction="none"), "reduction 'none' is neither 'mean' nor 'sum'"),  # type: ignore[arg-type]
        (lambda: Huber(0.0), "delta 0.0 is not above 0"),
        (lambda: BinaryCrossentropy(label_smoothing=2), "label_smoothing 2 is not between 0 and 1"),
        (lambda: CategoricalCrossentropy(label_smoothing=-1), "label_smoothing -1 is not between 0 and 1"),
    ],
)
def test_settings_that_are_refused(make: Callable[[], Loss], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_what_does_not_say_how() -> None:
    op = Builder()
    with pytest.raises(NotImplementedError, match="Loss does not say how it is built"):
        Loss().build(op, op.input("x", "float32", (2,)), op.input("y", "float32", (2,)))


@pytest.mark.parametrize("loss", [MeanSquaredError(), MeanAbsoluteError(), Huber(), BinaryCrossentropy(), Hinge()])
def test_a_mean_over_the_batch_is_not_broadcast_beside_its_targets(loss: Loss) -> None:
    op = Builder()
    prediction, target = op.input("x", "float32", (1, 1)), op.input("y", "float32", ("batch", 1))
    program = aicore.compile(op.graph([prediction, target], {"each": loss.build(op, prediction, target)}), "cpu")
    assert program(x=np.ones((1, 1), np.float32), y=np.ones((1, 1), np.float32))["each"].shape == (1,)
    with pytest.raises(InferenceError, match="the number of elements differs"):
        program(x=np.ones((1, 1), np.float32), y=np.ones((5, 1), np.float32))
