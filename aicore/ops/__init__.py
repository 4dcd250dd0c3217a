"""The core ops, by family, which is imported when one of its ops is first asked for, as `op.Name` or in `CORE`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from aicore.ir import Namespace, Op

FAMILIES: Mapping[str, str] = {
    "activation": (
        "Relu Clip LeakyRelu PRelu Elu Selu Celu Gelu Sigmoid HardSigmoid HardSwish Swish Mish Softplus "
        "Softsign Tanh ThresholdedRelu Shrink"
    ),
    "arithmetic": "Add Sub Mul Div Mod Pow Max Min Sum Mean",
    "attention": "DotProductAttention",
    "bits": "BitCast",
    "cast": "Cast CastLike",
    "control": "If Loop Scan",
    "convolution": "Conv ConvTranspose",
    "convolution_grad": "ConvWeightGrad",
    "creation": "ConstantOfShape Range EyeLike OneHot Trilu",
    "cumulative": "CumSum CumProd",
    "deformable": "DeformConv",
    "detection": "NonMaxSuppression",
    "einsum": "Einsum",
    "elementwise": (
        "Abs Sign Neg Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Ceil "
        "Floor Round"
    ),
    "fused_gradients": "MaxPoolReluGrad",
    "fused_linear": "ConvAct ScaleActConv ConvAdd ConvAddAct GemmAct MatMulAdd MatMulAddAct",
    "fused_normalization": "AddNormalization AddNormalizationSum BatchNormalizationAct",
    "fused_pointwise": "Region",
    "gather": "Gather GatherElements GatherND",
    "layout": "ChannelsLast",
    "logic": (
        "Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Not BitwiseAnd BitwiseOr BitwiseXor "
        "BitwiseNot BitShift Where IsNaN IsInf"
    ),
    "losses": "SoftmaxCrossEntropy SoftmaxCrossEntropyGrad",
    "matmul": "MatMul Gemm Det",
    "movement": "Transpose Expand Tile Concat Split",
    "ngrams": "TfIdfVectorizer",
    "normalization": (
        "BatchNormalization LayerNormalization RMSNormalization InstanceNormalization GroupNormalization "
        "LpNormalization LRN MeanVarianceNormalization"
    ),
    "normalization_grad": "BatchNormalizationGrad LayerNormalizationGrad RMSNormalizationGrad",
    "optimizers": "SGDUpdate RMSpropUpdate AdagradUpdate AdamUpdate LambUpdate LionUpdate GlobalNorm",
    "ordering": "ArgMax ArgMin TopK",
    "pooling": "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool",
    "pooling_grad": "MaxPoolGrad AveragePoolGrad",
    "quantization": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear",
    "quantized_linear": "MatMulInteger QLinearMatMul ConvInteger QLinearConv",
    "random": "Dropout DrawUniform DrawNormal DrawKey",
    "rearrange": "DepthToSpace SpaceToDepth ReverseSequence",
    "recurrent": "RNN GRU LSTM",
    "recurrent_grad": "RecurrentGrad",
    "reduction": (
        "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
        "ReduceLogSumExp SumTo"
    ),
    "resize": "Resize",
    "sampling": "GridSample AffineGrid RoiAlign",
    "scatter": "ScatterElements ScatterND TensorScatter Col2Im",
    "selection": "NonZero Unique Compress",
    "shape": "Shape Size Identity Reshape Flatten Squeeze Unsqueeze",
    "slicing": "Slice Pad CenterCropPad",
    "softmax": "Softmax LogSoftmax Hardmax",
    "spectral": "DFT STFT MelWeightMatrix",
    "strings": "StringNormalizer StringConcat StringSplit RegexFullMatch",
    "unpooling": "MaxUnpool",
}
"""The ops of each module of this package; those that are not here are helpers of the others."""


class _Core(Mapping[str, type[Op]]):
    """Every core op by name. Names cost nothing; an op costs the import of its family."""

    def __init__(self) -> None:
        self._homes = {name: family for family, names in FAMILIES.items() for name in names.split()}
        self._found: dict[str, type[Op]] = {}

    def __getitem__(self, name: str) -> type[Op]:
        found = self._found.get(name)
        if found is None:
            found = getattr(importlib.import_module(f"{__name__}.{self._homes[name]}"), name)
            self._found[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


CORE: Mapping[str, type[Op]] = _Core()
"""Every core op by name."""

Namespace.core_ops = CORE


def __getattr__(name: str) -> Any:
    if name not in CORE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return CORE[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *CORE})
