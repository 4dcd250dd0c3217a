"""Every activation of fused kernels against its formula in float64."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ops import activation as ops
from aicore.ops.recurrent import ACTIVATION_DEFAULTS, Activated
from aicore_cpu_numpy.reference.activation import KERNELS as FORMULAS
from aicore_cpu_numpy.reference.recurrent import FORMULAS as RECURRENT_FORMULAS
from aicore_cuda_ge.calls import pack
from aicore_cuda_ge.kernels._activations import IDENTITY, activation_params, recurrent_params, refusal

Array = np.ndarray[Any, Any]
_SOURCE = """
#include "activation/activation.cuh"
extern "C" void apply(const aicore::Activation *f, float *x, long n) {
    for (long i = 0; i < n; i++) x[i] = aicore::activate(*f, x[i]);
}
"""
ACTIVATIONS: tuple[ops.Activation, ...] = (
    *(ops.Relu(), ops.Clip(-1.0, 1.5), ops.Clip(), ops.Clip(max=0.5), ops.LeakyRelu(0.2), ops.Elu(1.5), ops.Selu()),
    *(ops.Celu(2.0), ops.Gelu(), ops.Gelu("tanh"), ops.Sigmoid(), ops.HardSigmoid(0.3, 0.4), ops.HardSwish()),
    *(ops.Swish(1.3), ops.Mish(), ops.Softplus(), ops.Softsign(), ops.Tanh(), ops.ThresholdedRelu(0.75)),
    *(ops.Shrink(0.625, 0.125),),
)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 88.0, -88.0, 1e-30], np.float32)
NUMBERS = np.concatenate([SPECIAL, np.linspace(-12, 12, 4001, dtype=np.float32)])


@pytest.fixture(scope="module")
def apply(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    library = tmp_path_factory.mktemp("activations") / "activations.so"
    include = Path(__file__).parents[2] / "graph_executor"
    command = [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{include}", "-xc++", "-", "-o", str(library)]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    loaded = ctypes.CDLL(str(library))

    def call(params: tuple[int | float, ...], x: Array) -> Array:
        y = x.copy()
        loaded.apply(pack(params), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(y.size))
        return y

    return call


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_formula(activation: ops.Activation, apply: Any) -> None:
    formula = next(kernel for kernel in FORMULAS if kernel.op is type(activation))
    with np.errstate(all="ignore"):
        wanted = formula.function(activation, NUMBERS.astype(np.float64))
    np.testing.assert_allclose(apply(activation_params(activation), NUMBERS), wanted, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("name", ACTIVATION_DEFAULTS)
def test_recurrent_formula(name: str, apply: Any) -> None:
    activated = Activated(name, 0.75, 0.5)
    with np.errstate(all="ignore"):
        wanted = RECURRENT_FORMULAS[name](NUMBERS.astype(np.float64), 0.75, 0.5)
    found = apply(recurrent_params(activated), NUMBERS)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=3e-7)


def test_a_threshold_is_kept_by_recurrent_layers_only(apply: Any) -> None:
    x = np.array([0.75], np.float32)
    assert apply(recurrent_params(Activated("ThresholdedRelu", 0.75, None)), x)[0] == 0.75
    assert apply(activation_params(ops.ThresholdedRelu(0.75)), x)[0] == 0


def test_no_activation_changes_nothing(apply: Any) -> None:
    np.testing.assert_array_equal(apply(IDENTITY, NUMBERS), NUMBERS)
    assert activation_params(None) == IDENTITY


def test_others_are_refused() -> None:
    class Unknown(ops.Activation):
        """Of somebody else."""

    assert refusal(Unknown()) == "compiled kernels have no Unknown"
    assert refusal(None) == ""
    assert refusal(ops.Relu()) == ""
