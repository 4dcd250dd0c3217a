"""Every attribute of every op has a case in which another value of it changes what the op gives, or is refused.

An attribute that a kernel does not read would go unnoticed otherwise: most suites leave most of them at their default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.errors import AicoreError
from aicore.ir import Op, Sample, Value, constant_value
from aicore.ops import CORE
from aicore.ops.cast import Cast, CastLike
from aicore.plugins import PluginRegistry
from aicore.testing import Case, Reference

UNREAD = {
    ("TopK", "sorted"): "any order is right without it, and the kernels sort all the same",
}
"""Attributes that may change nothing, and why."""

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"alpha": 0.3} for name in ("LeakyRelu", "Elu", "Celu", "Swish", "ThresholdedRelu")},
    "Selu": {"alpha": 0.3, "gamma": 0.3},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.3},
    **{
        name: {"kernel_shape": (9, 9)} for name in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")
    },
    **{
        name: {"hidden_size": 99, "activation_alpha": (0.3,), "activation_beta": (0.3,)}
        for name in ("RNN", "GRU", "LSTM")
    },
    "Range": {"stash_type": "float64"},
    "LayerNormalization": {"stash_type": "bfloat16"},
    "RMSNormalization": {"stash_type": "int32"},
    "GroupNormalization": {"stash_type": "int32"},
    "NonMaxSuppression": {"score_threshold": 0.9},
    "QuantizeLinear": {"precision": "float16"},
    "Resize": {"extrapolation_value": 7.0},
    "StringNormalizer": {"locale": "tr_TR"},
    "STFT": {"frame_step": 1, "frame_length": 7},
    "MaxUnpool": {"output_shape": (9, 9, 9, 9)},
    "TensorScatter": {"axis": -1},
}
"""Values to try beside those of the samples."""

LARGE, THIRD = np.float32([1e6, -3]), np.float32([3])
SAMPLES: dict[str, list[Sample]] = {
    "Cast": [
        Sample(Cast("float8_e4m3fn", saturate=0), (LARGE,)),
        Sample(Cast("float8_e8m0fnu", round_mode="down"), (THIRD,)),
    ],
    "CastLike": [
        Sample(CastLike(saturate=0), (LARGE, np.zeros(1, ml_dtypes.float8_e4m3fn))),
        Sample(CastLike(round_mode="down"), (THIRD, np.ones(1, ml_dtypes.float8_e8m0fnu))),
    ],
}
"""Samples beside those of the ops."""


ATTRIBUTES = [
    (name, field.name)
    for name, cls in CORE.items()
    if name not in ("If", "Loop", "Scan")  # their attributes are graphs, or tell which operands are what
    for field in fields(cls)  # type: ignore[arg-type]
    if field.default is not MISSING  # others have a value in every sample
]


@pytest.fixture(scope="module")
def reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


@pytest.mark.parametrize(("name", "attribute"), ATTRIBUTES, ids=map("-".join, ATTRIBUTES))
def test_another_value_changes_the_outcome(name: str, attribute: str, reference: Reference) -> None:
    if (name, attribute) in UNREAD:
        pytest.skip(UNREAD[name, attribute])
    default = next(f.default for f in fields(CORE[name]) if f.name == attribute)  # type: ignore[arg-type]
    for sample in _samples(name, attribute):
        op = absorbed(sample)
        if op is None or getattr(op, attribute) == default:
            continue
        plain = replace(sample, op=replace(op, **{attribute: default}))  # type: ignore[type-var]
        if outcome(replace(sample, op=op), reference) != outcome(plain, reference):
            return
    pytest.fail(f"no sample of {name} depends on {attribute}")


def _samples(name: str, attribute: str) -> Iterator[Sample]:
    own = [*CORE[name].samples(np.random.default_rng(0)), *SAMPLES.get(name, ())]
    yield from own
    if attribute in VARIANTS.get(name, ()):
        for sample in own:
            yield replace(sample, op=replace(sample.op, **{attribute: VARIANTS[name][attribute]}))  # type: ignore[type-var]


def absorbed(sample: Sample) -> Op | None:
    """The op with its constant operands as fields, without the defaults that its operands tell; None if refused."""
    values = [None if a is None or i not in sample.constant else constant_value(a) for i, a in enumerate(sample.inputs)]
    try:
        return sample.op.absorb(*values)[0]
    except AicoreError:
        return None


def outcome(sample: Sample, reference: Reference) -> Any:
    """Types, shapes and numbers of the results, or the class of the error."""
    try:
        node = Case("", 0, sample, "", "").node()
        arrays = [None if v is None else _array(v, sample) for v in node.inputs]
        return [(a.dtype.name, a.shape, repr(a.tolist())) for a in reference.evaluate(node.op, *arrays)]
    except AicoreError as error:
        return type(error)


def _array(value: Value, sample: Sample) -> Any:
    return value.constant.array if value.constant is not None else sample.inputs[int(value.name[1:])]
