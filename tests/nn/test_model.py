"""Models: training as one program, the loop around it, files, and what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore import nn
from aicore.errors import ConfigError, InputError, ModelError, TrainingError
from aicore.ir import TensorType, symbol
from aicore.nn.checkpoint import read_checkpoint
from benchmarks.training.aicore_step import data as training_data
from benchmarks.training.networks import NETWORKS

Array = np.ndarray[Any, Any]

XOR_X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
XOR_Y = np.array([[0], [1], [1], [0]], np.float32)


def small_model(**options: Any) -> nn.Model:
    layers = nn.Sequential(nn.Dense(8, activation="tanh"), nn.Dropout(0.2), nn.Dense(1))
    return nn.Model(layers, target="cpu", **options).compile(nn.Adam(0.02), "mean_squared_error")


def line_data(count: int = 37) -> tuple[Array, Array]:
    x = np.random.default_rng(3).normal(size=(count, 3)).astype(np.float32)
    return x, (x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25).astype(np.float32)


def test_one_step_of_gradient_descent_by_hand() -> None:
    """y = w x + b with w = 2, b = 1 on x = 3, target 4: error 3, loss 9, gradients 2 * 3 * 3 = 18 and 2 * 3 = 6."""
    model = nn.Model(nn.Dense(1), inputs=(1,), target="cpu").compile(nn.SGD(0.01), "mean_squared_error")
    model.load_state_dict({"weight": [[2.0]], "bias": [1.0]})
    logs = model.train_on_batch(np.float32([[3]]), np.float32([[4]]))
    assert logs == {"loss": 9.0}
    found = model.state_dict()
    np.testing.assert_allclose(found["weight"], [[2 - 0.18]], rtol=1e-6)
    np.testing.assert_allclose(found["bias"], [1 - 0.06], rtol=1e-6)


def test_the_step_is_one_plan_without_python_between_its_kernels() -> None:
    model = small_model()
    model.fit(*line_data(), epochs=1, verbose=False)
    assert len(model.program.plan) == 1


def test_xor_is_learnt() -> None:
    model = nn.Model(nn.Sequential(nn.Dense(8, activation="tanh"), nn.Dense(1)), target="cpu")
    model.compile("adam", "binary_crossentropy", ["accuracy"], learning_rate=0.05)
    history = model.fit(XOR_X, XOR_Y, epochs=200, batch_size=4, verbose=False)
    assert history["accuracy"][-1] == 1.0
    assert model.evaluate(XOR_X, XOR_Y)["accuracy"] == 1.0
    np.testing.assert_array_equal(model.predict(XOR_X) > 0, XOR_Y > 0.5)


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    x, y = line_data()
    states = []
    for seed in (0, 0, 1):
        model = small_model(seed=seed)
        model.fit(x, y, epochs=2, verbose=False)
        states.append(model.state_dict())
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    assert not np.array_equal(states[0]["dense.weight"], states[2]["dense.weight"])


def test_adding_a_layer_keeps_the_first_numbers_of_the_others() -> None:
    one = nn.Model(nn.Sequential(nn.Dense(4)), inputs=(3,)).state_dict()
    two = nn.Model(nn.Sequential(nn.Dense(4), nn.Dense(2)), inputs=(3,)).state_dict()
    np.testing.assert_array_equal(one["dense.weight"], two["dense.weight"])


@pytest.mark.parametrize("every", [None, 3], ids=["after an epoch", "within an epoch"])
def test_resumed_training_equals_uninterrupted_bit_for_bit(tmp_path: Path, every: int | None) -> None:
    x, y = line_data()
    path = tmp_path / "training.safetensors"

    def callbacks() -> list[nn.Callback]:
        return [
            nn.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.05),
            nn.ModelCheckpoint(path, every=every),
        ]

    whole = small_model()
    history = whole.fit(x, y, epochs=5, batch_size=8, callbacks=callbacks(), verbose=False)

    class Break(nn.Callback):
        def on_step_end(self, model: nn.Model, step: int, logs: object) -> None:
            if step == 13:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_model().fit(x, y, epochs=5, batch_size=8, callbacks=[*callbacks(), Break()], verbose=False)
    assert read_checkpoint(path).progress.step == (10 if every is None else 12)
    resumed = small_model(seed=0)
    again = resumed.fit(x, y, epochs=5, batch_size=8, callbacks=callbacks(), resume=path, verbose=False)
    for name, array in whole.state_dict().items():
        np.testing.assert_array_equal(resumed.state_dict()[name], array)
    assert again.history == history.history
    assert resumed.learning_rate == whole.learning_rate


def test_a_loss_that_is_no_number_stops_with_step_and_op_and_undoes_the_step() -> None:
    class Logarithm(nn.Layer):
        def build(self, scope: nn.Scope, x: Any) -> Any:
            return scope.op.Log(x)

    model = nn.Model(nn.Sequential(nn.Dense(1, name="linear"), Logarithm()), inputs=(1,), target="cpu")
    model.compile(nn.SGD(0.0), "mean_squared_error")
    model.load_state_dict({"linear.weight": [[1.0]], "linear.bias": [0.0]})
    assert model.train_on_batch(np.float32([[1]]), np.float32([[0]]))["loss"] == 0.0
    with pytest.raises(
        TrainingError, match=r"step 2, epoch 1: the loss is nan: Log in layer 'logarithm' made the first"
    ):
        model.train_on_batch(np.float32([[-1]]), np.float32([[0]]))
    assert model.state_dict()["linear.weight"][0, 0] == 1.0


def test_a_loss_of_poisoned_data_names_the_input() -> None:
    model = nn.Model(nn.Dense(1), target="cpu").compile("sgd", "mean_squared_error")
    with pytest.raises(TrainingError, match="'input' held NaN before the step"):
        model.fit(np.full((4, 2), np.nan, np.float32), np.zeros((4, 1)), verbose=False)


class Root(nn.Layer):
    """sqrt((weight * x) ** 2), whose derivative at 0 is 0 * infinity."""

    def __init__(self, square: bool = True) -> None:
        self.square = square

    def build(self, scope: nn.Scope, x: Any) -> Any:
        op = scope.op
        product = op.Mul(x, scope.parameter("weight", (1,), nn.initializers.Constant(0.0)))
        return op.Sqrt(op.Mul(product, product) if self.square else product)


ONE = np.ones((1, 1), np.float32)


def test_gradients_that_are_no_numbers_stop_at_their_own_step_and_leave_the_parameters() -> None:
    model = nn.Model(nn.Sequential(nn.Dense(1, use_bias=False), Root()), inputs=(1,), target="cpu")
    model.compile(nn.SGD(0.1), "mean_squared_error")
    held = model.state_dict()
    with pytest.raises(TrainingError) as caught:
        model.train_on_batch(ONE, ONE)
    said = "step 1, epoch 1: the norm of the gradients is nan: Mul in the gradient of layer 'root' made the first NaN"
    assert str(caught.value).startswith(said)
    assert all(np.array_equal(array, held[name]) for name, array in model.state_dict().items())
    assert model.progress.step == 0


def test_without_the_check_the_next_step_tells() -> None:
    model = nn.Model(Root(), inputs=(1,), target="cpu").compile("sgd", "mean_squared_error", check_gradients=False)
    assert model.train_on_batch(ONE, ONE) == {"loss": 1.0}
    assert np.isnan(model.state_dict()["weight"])
    with pytest.raises(TrainingError, match="step 2, epoch 1: the loss is nan: 'weight' held NaN before the step"):
        model.train_on_batch(ONE, ONE)


def test_gradients_that_are_no_numbers_are_told_where_the_state_is_kept_once() -> None:
    model = nn.Model(Root(), inputs=(1,), target="cpu").compile("sgd", "mean_squared_error", keep_previous=False)
    with pytest.raises(
        TrainingError, match="the norm of the gradients is nan; the model holds the state after the step"
    ):
        model.train_on_batch(ONE, ONE)


def test_an_infinite_gradient_that_is_clipped_counts_as_clipped() -> None:
    """y = sqrt(w) at w = 0, target 1: the derivative is 2 (0 - 1) infinity; clipped to -1, w becomes 0.25."""
    model = nn.Model(Root(square=False), inputs=(1,), target="cpu")
    model.compile(nn.SGD(0.25, clipvalue=1.0), "mean_squared_error")
    assert model.train_on_batch(ONE, ONE) == {"loss": 1.0}
    assert model.state_dict()["weight"] == [0.25]
    model = nn.Model(Root(square=False), inputs=(1,), target="cpu").compile(nn.SGD(0.25), "mean_squared_error")
    with pytest.raises(TrainingError, match=r"the norm of the gradients is inf: .* made the first infinity"):
        model.train_on_batch(ONE, ONE)


@pytest.mark.parametrize("check", [None, False, True])
def test_gradients_are_checked_on_the_host_by_default(check: bool | None) -> None:
    for target, default in (("cpu", True), ("fake", False)):
        model = nn.Model(nn.Dense(1), target=target).compile("sgd", "mean_squared_error", check_gradients=check)
        model.train_on_batch(ONE, ONE)
        assert any("GlobalNorm" in str(node) for node in model.program.graph.nodes) is (
            default if check is None else check
        )


def test_the_norm_is_that_of_the_gradients() -> None:
    """y = w x + b with w = 2, b = 1 on x = 3, target 4: the gradients are 18 and 6."""
    from aicore.nn.losses import loss_of
    from aicore.nn.optimizers import optimizer
    from aicore.nn.step import Task, training_graph

    column = TensorType("float32", (symbol("batch"), 1))
    task = Task(nn.Dense(1), {"input": column}, column, loss_of("mse"), (), optimizer("sgd"), norm=True)
    step = training_graph(task)
    feeds = {"input": np.float32([[3]]), "target": np.float32([[4]]), **step.first_values(0)}
    feeds |= {"weight": np.float32([[2]]), "bias": np.float32([1])}
    found = aicore.compile(step.graph, "cpu").run(feeds)
    assert found["gradient_norm"] == pytest.approx(np.sqrt(18.0**2 + 6.0**2), rel=1e-6)


@pytest.mark.parametrize("name", ["loss", "gradient_norm", "accuracy"])
def test_metrics_with_the_name_of_another_output_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="two metrics have one name, or that of another output"):
        nn.Model(nn.Dense(1)).compile(metrics=["accuracy", nn.Accuracy(name=name)])


def test_options_that_there_are_not_are_told_before_there_is_data() -> None:
    with pytest.raises(ConfigError, match=r"Model has no option 'treads'; did you mean 'threads'\?"):
        nn.Model(nn.Dense(1), treads=2)
    with pytest.raises(ConfigError, match=r"Model has no option 'seeds'; did you mean 'seed'\?"):
        nn.Model(nn.Dense(1), seeds=2)
    with pytest.raises(
        ConfigError, match=r"Model has no option 'zzz'; there are: layer, inputs, target, seed, dtype, fall"
    ):
        nn.Model(nn.Dense(1), zzz=2)
    with pytest.raises(ConfigError, match=r"Model\.compile has no option 'optimiser'; did you mean 'optimizer'\?"):
        nn.Model(nn.Dense(1)).compile(optimiser="adam")  # type: ignore[arg-type]


def test_compiling_while_fit_runs_is_refused_and_fit_ends() -> None:
    class Again(nn.Callback):
        def on_epoch_end(self, model: nn.Model, epoch: int, logs: object) -> None:
            model.compile("sgd", "mean_squared_error")

    model = small_model()
    with pytest.raises(ConfigError, match="compile while fit runs would begin training anew"):
        model.fit(*line_data(), epochs=2, callbacks=[Again()], verbose=False)
    assert model.compile("sgd", "mean_squared_error").fit(*line_data(), verbose=False).epochs == 1


def test_rows_that_an_embedding_does_not_have_are_refused() -> None:
    model = nn.Model(nn.Sequential(nn.Embedding(5, 2, name="words"), nn.Flatten(), nn.Dense(1)), target="cpu")
    model.compile("sgd", "mean_squared_error")
    model.fit(np.array([[0, 4]]), ONE, verbose=False)
    for wrong in (-1, 5):
        for use in (model.predict, lambda x: model.evaluate(x, ONE), lambda x: model.train_on_batch(x, ONE)):
            with pytest.raises(InputError, match=f"'input' holds {wrong}, and layer 'words' has rows 0 to 4"):
                use(np.array([[0, wrong]]))


def test_rows_that_a_layer_computes_are_those_of_gather() -> None:
    class Before(nn.Layer):
        def build(self, scope: nn.Scope, x: Any) -> Any:
            return scope.call(nn.Embedding(3, 1), scope.op.Sub(x, scope.op.scalar(1, x)))

    model = nn.Model(Before(), target="cpu")
    model.predict(np.array([1]))
    model.load_state_dict({"embedding.weight": [[1.0], [2.0], [3.0]]})
    np.testing.assert_array_equal(model.predict(np.array([0, 1, 3])), [[3.0], [1.0], [3.0]])


def test_rows_of_a_branch_that_does_not_run_may_be_any() -> None:
    class Zeros(nn.Layer):
        def build(self, scope: nn.Scope, x: Any) -> Any:
            return scope.op.Unsqueeze(scope.op.Cast(x, to="float32"), axes=(1,))

    class Either(nn.Layer):
        def build(self, scope: nn.Scope, flag: Any, x: Any) -> Any:
            return scope.call(nn.Conditional(nn.Embedding(3, 1), Zeros()), scope.op.ReduceMax(flag, keepdims=0), x)

    types = {name: TensorType("int64", (symbol("batch"),)) for name in ("flag", "x")}
    model = nn.Model(Either(), types, target="cpu")
    np.testing.assert_array_equal(model.predict({"flag": np.array([0]), "x": np.array([-1])}), [[-1.0]])


def test_state_dicts_are_strict_and_name_what_does_not_fit() -> None:
    model = nn.Model(nn.Dense(2), inputs=(3,))
    held = model.state_dict()
    with pytest.raises(InputError, match=r"missing \['bias'\], unexpected \['other'\]"):
        model.load_state_dict({"weight": held["weight"], "other": held["bias"]})
    with pytest.raises(InputError, match=r"'weight' is float32\[2, 3\], got float32\[3, 2\]"):
        model.load_state_dict({**held, "weight": held["weight"].T})
    model.load_state_dict({"bias": np.array([1, 2])}, strict=False)
    np.testing.assert_array_equal(model.state_dict()["bias"], [1, 2])


def test_state_dicts_go_through_safetensors(tmp_path: Path) -> None:
    model, other = (nn.Model(nn.Dense(2), inputs=(3,), seed=seed) for seed in (0, 1))
    model.save(tmp_path / "weights.safetensors")
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(other.state_dict()["weight"], model.state_dict()["weight"])


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    model = small_model()
    model.fit(*line_data(), verbose=False)
    path = tmp_path / "training.safetensors"
    model.save_checkpoint(path)
    content = path.read_bytes()
    for damaged in (b"", content[:100], b"\xff" * 64, content[:-7]):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"training\.safetensors"):
            model.load_checkpoint(path)
    model.save(path)
    with pytest.raises(ModelError, match="no checkpoint of training"):
        model.load_checkpoint(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    model = small_model()
    model.fit(*line_data(), verbose=False)
    model.save_checkpoint(tmp_path / "a.safetensors")
    other = nn.Model(nn.Dense(1), target="cpu").compile("adam", "mean_squared_error")
    other.fit(*line_data(), verbose=False)
    with pytest.raises(InputError, match=r"there is no '.*'; it belongs to another model or optimiser"):
        other.load_checkpoint(tmp_path / "a.safetensors")


def test_a_saved_model_runs_in_another_runtime(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x, y = line_data()
    model = small_model()
    model.fit(x, y, epochs=3, verbose=False)
    model.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x})
    np.testing.assert_allclose(found, model.predict(x), rtol=1e-5, atol=1e-6)


def test_early_stopping_goes_back_to_the_best() -> None:
    class Worse(nn.Callback):
        """Moves the bias away after the third epoch."""

        def on_epoch_end(self, model: nn.Model, epoch: int, logs: object) -> None:
            if epoch == 3:
                model.load_state_dict({"bias": [100.0]}, strict=False)

    x, y = line_data()
    model = nn.Model(nn.Dense(1), target="cpu").compile(nn.SGD(0.05), "mean_squared_error")
    stopping = nn.EarlyStopping("loss", patience=2, restore_best=True)
    history = model.fit(x, y, epochs=50, callbacks=[stopping, Worse()], verbose=False)
    assert history.epochs == stopping.stopped_epoch == 5
    assert abs(model.state_dict()["bias"][0]) < 1


def test_the_last_batch_may_be_smaller_and_counts_by_its_size() -> None:
    model = nn.Model(nn.Dense(1), inputs=(1,), target="cpu").compile(nn.SGD(0.0), "mean_squared_error")
    model.load_state_dict({"weight": [[0.0]], "bias": [0.0]})
    y = np.float32([[1], [1], [1], [2]])
    history = model.fit(np.zeros((4, 1), np.float32), y, batch_size=3, shuffle=False, verbose=False)
    assert history["loss"] == [(1 + 1 + 1 + 4) / 4]


def test_validation_is_kept_apart() -> None:
    x, y = line_data(20)
    model = nn.Model(nn.Dense(1), target="cpu").compile("sgd", "mean_squared_error", ["mae"])
    history = model.fit(x, y, validation_split=0.25, verbose=False)
    assert list(history.history) == ["loss", "mean_absolute_error", "val_loss", "val_mean_absolute_error"]
    expected = float(np.mean((model.predict(x[15:]) - y[15:]) ** 2))
    assert history["val_loss"][0] == pytest.approx(expected, rel=1e-5)


def test_batches_may_come_from_anything_that_can_be_iterated() -> None:
    x, y = line_data(8)

    class Batches:
        def __iter__(self) -> Any:
            yield x[:5], y[:5]
            yield x[5:], y[5:]

    one = nn.Model(nn.Dense(1), target="cpu").compile("sgd", "mean_squared_error")
    two = nn.Model(nn.Dense(1), target="cpu").compile("sgd", "mean_squared_error")
    one.fit(Batches(), epochs=2, verbose=False)
    two.fit(x, y, batch_size=5, shuffle=False, epochs=2, verbose=False)
    np.testing.assert_array_equal(one.state_dict()["weight"], two.state_dict()["weight"])


def test_learning_rates_may_be_set_and_scheduled() -> None:
    x, y = line_data(8)
    model = nn.Model(nn.Dense(1), target="cpu").compile(nn.SGD(0.5), "mean_squared_error")
    model.fit(x, y, verbose=False)
    assert model.learning_rate == 0.5
    model.learning_rate = 0.25
    assert model.learning_rate == 0.25
    seen = []
    schedule = nn.LearningRateScheduler(lambda epoch, rate: seen.append((epoch, rate)) or 1 / epoch)
    model.compile(nn.SGD(0.5), "mean_squared_error").fit(x, y, epochs=2, callbacks=[schedule], verbose=False)
    assert seen == [(1, 0.5), (2, 1.0), (3, 0.5)]


def test_a_schedule_is_part_of_the_graph() -> None:
    """Constant gradient 1 (y = w * 1, absolute error): steps are the rates of the schedule, 1, 1/2, 1/4."""
    rates = nn.schedules.StepDecay(1.0, step_size=1, gamma=0.5)
    model = nn.Model(nn.Dense(1, use_bias=False), inputs=(1,), target="cpu")
    model.compile(nn.SGD(rates), "mean_absolute_error")
    model.load_state_dict({"weight": [[0.0]]})
    found = []
    for _ in range(3):
        model.train_on_batch(np.float32([[1]]), np.float32([[100]]))
        found.append(float(model.state_dict()["weight"][0, 0]))
    assert found == [1.0, 1.5, 1.75]
    assert model.learning_rate == 0.125


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m: m.fit(np.zeros((3, 2)), np.zeros((2, 1))), "data of different lengths: input has 3, y has 2"),
        (lambda m: m.fit(np.zeros((3, 2)), np.zeros((3, 1)), epochs=0), "epochs=0 is no whole number from 1"),
        (lambda m: m.fit(np.zeros((3, 2)), np.zeros((3, 1)), batch_size=0), "batch_size=0 is no whole number from 1"),
        (lambda m: m.fit({"x": np.zeros((3, 2))}, np.zeros((3, 1))), "the model takes 'input'; got 'x'"),
        (lambda m: m.fit(np.array(["a"]), np.zeros(1)), "wants numbers"),
        (lambda m: m.fit([], verbose=False), "there is no batch"),
        (lambda m: m.save("model.pkl"), "saved as .onnx or .safetensors"),
        (lambda m: setattr(m, "learning_rate", 1.0), "nothing was trained yet"),
    ],
)
def test_wrong_use_is_told(wrong: Any, message: str) -> None:
    model = nn.Model(nn.Dense(1), target="cpu").compile("sgd", "mean_squared_error")
    with pytest.raises((ConfigError, InputError), match=message):
        wrong(model)


def test_training_without_compile_is_told() -> None:
    with pytest.raises(ConfigError, match="call compile"):
        nn.Model(nn.Dense(1), target="cpu").fit(np.zeros((2, 1)), np.zeros((2, 1)), verbose=False)


def test_errors_name_the_layer() -> None:
    class Odd(nn.Layer):
        def build(self, scope: nn.Scope, x: Any) -> Any:
            return scope.op.MatMul(x, scope.op.constant(np.zeros((5, 5), np.float32)))

    with pytest.raises(Exception, match=r"layer 'sequential\.odd'"):
        nn.Model(nn.Sequential(nn.Sequential(Odd())), inputs=(3,)).build().graph()


def image_data(count: int = 6) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(count, 2, 8, 8)).astype(np.float32), rng.integers(0, 3, count)


def small_network() -> nn.Layer:
    layers = [nn.Conv2D(4, 3, use_bias=False), nn.BatchNormalization(), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Dense(3))


OPTIMIZERS = {
    "sgd": nn.SGD(0.01),
    "momentum": nn.SGD(0.01, momentum=0.9, nesterov=True),
    "rmsprop": nn.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": nn.Adagrad(0.01),
    "adam": nn.Adam(0.01, amsgrad=True),
    "adamw": nn.AdamW(0.01),
    "lamb": nn.LAMB(0.01),
    "lion": nn.Lion(0.001),
}


def after_five_steps(layer: nn.Layer, optimizer: nn.Optimizer, x: Array, y: Array, keep: bool) -> tuple[Any, int]:
    """The state after five steps, the fourth on fewer samples; and the bytes of what is held."""
    model = nn.Model(layer, target="cpu", seed=2)
    model.compile(optimizer, "sparse_categorical_crossentropy", keep_previous=keep)
    for step in range(5):
        count = len(x) - (step == 3)
        model.train_on_batch(x[:count], y[:count])
    state = model._programs.needs_training().state
    return state.read(), state.nbytes


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_state_that_is_kept_once_has_the_same_bits(name: str) -> None:
    x, y = image_data()
    twice, bytes_twice = after_five_steps(small_network(), OPTIMIZERS[name], x, y, keep=True)
    once, bytes_once = after_five_steps(small_network(), OPTIMIZERS[name], x, y, keep=False)
    for held, array in twice.items():
        np.testing.assert_array_equal(once[held], array, err_msg=held)
    assert bytes_once < 0.55 * bytes_twice


@pytest.mark.parametrize("name", ["mlp", "small_cnn", "lstm"])
def test_networks_whose_state_is_kept_once_have_the_same_bits(name: str) -> None:
    x, y = training_data(name, 3)
    layer = NETWORKS[name].layer()
    (twice, bytes_twice), (once, bytes_once) = (
        after_five_steps(layer, nn.Adam(1e-3), x, y, keep) for keep in (True, False)
    )
    for held, array in twice.items():
        np.testing.assert_array_equal(once[held], array, err_msg=held)
    assert bytes_once < 0.51 * bytes_twice


def test_a_loss_that_is_no_number_leaves_the_state_after_the_step_where_it_is_kept_once() -> None:
    model = nn.Model(nn.Dense(1), inputs=(2,), target="cpu").compile("sgd", "mean_squared_error", keep_previous=False)
    with pytest.raises(TrainingError, match=r"step 1, epoch 1: the loss is nan; the model holds the state after the"):
        model.train_on_batch(np.full((4, 2), np.nan, np.float32), np.zeros((4, 1)))
    assert np.isnan(model.state_dict()["weight"]).all()
    assert model.progress.step == 0
