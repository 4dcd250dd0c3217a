"""All kernels of this plugin: what the modules of `reference` and `fast` list under `KERNELS`, imported when needed."""

from __future__ import annotations

from collections.abc import Mapping

from aicore.kernels import Kernel, KernelFamily, load_kernels

OPS: Mapping[str, str] = {
    "reference.activation": (
        "Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus "
        "Softsign Swish Tanh ThresholdedRelu"
    ),
    "reference.arithmetic": "Add Div Max Mean Min Mod Mul Pow Sub Sum",
    "reference.bits": "BitCast",
    "reference.cast": "Cast CastLike",
    "reference.convolution": "Conv ConvTranspose ConvWeightGrad",
    "reference.creation": "ConstantOfShape EyeLike OneHot Range Trilu",
    "reference.cumulative": "CumProd CumSum",
    "reference.deformable": "DeformConv",
    "reference.detection": "NonMaxSuppression",
    "reference.einsum": "Einsum",
    "reference.elementwise": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Reciprocal Round Sign Sin "
        "Sinh Sqrt Tan"
    ),
    "reference.gather": "Gather GatherElements GatherND",
    "reference.logic": (
        "And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual IsInf IsNaN "
        "Less LessOrEqual Not Or Where Xor"
    ),
    "reference.losses": "SoftmaxCrossEntropy SoftmaxCrossEntropyGrad",
    "reference.matmul": "Det Gemm MatMul",
    "reference.movement": "Concat Expand Split Tile Transpose",
    "reference.ngrams": "TfIdfVectorizer",
    "reference.normalization": (
        "BatchNormalization BatchNormalizationGrad GroupNormalization InstanceNormalization LRN "
        "LayerNormalization LayerNormalizationGrad LpNormalization MeanVarianceNormalization RMSNormalization "
        "RMSNormalizationGrad"
    ),
    "reference.ordering": "ArgMax ArgMin TopK",
    "reference.pooling": (
        "AveragePool AveragePoolGrad GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxPoolGrad"
    ),
    "reference.quantization": "DequantizeLinear QuantizeLinear",
    "reference.quantized_linear": "ConvInteger MatMulInteger QLinearConv QLinearMatMul",
    "reference.random": "DrawKey DrawNormal DrawUniform Dropout",
    "reference.rearrange": "DepthToSpace ReverseSequence SpaceToDepth",
    "reference.recurrent": "GRU LSTM RNN",
    "reference.recurrent_grad": "RecurrentGrad",
    "reference.reduction": (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
        "ReduceSumSquare SumTo"
    ),
    "reference.resize": "Resize",
    "reference.sampling": "AffineGrid GridSample RoiAlign",
    "reference.scatter": "Col2Im ScatterElements ScatterND TensorScatter",
    "reference.selection": "Compress NonZero Unique",
    "reference.shape": "Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
    "reference.slicing": "CenterCropPad Pad Slice",
    "reference.softmax": "Hardmax LogSoftmax Softmax",
    "reference.spectral": "DFT MelWeightMatrix STFT",
    "reference.strings": "RegexFullMatch StringConcat StringNormalizer StringSplit",
    "reference.unpooling": "MaxUnpool",
    "fast.batch_normalization": "BatchNormalization BatchNormalizationGrad",
    "fast.cast": "Cast",
    "fast.convolution": "Conv ConvAct ConvAdd ConvAddAct",
    "fast.convolution_transpose": "ConvTranspose",
    "fast.convolution_weight": "ConvWeightGrad",
    "fast.indexing": "Gather Pad Slice",
    "fast.last_convolution": "Conv ConvAct ConvAdd ConvAddAct ScaleActConv",
    "fast.last_convolution_flipped": "ConvTranspose",
    "fast.last_convolution_transpose": "ConvTranspose",
    "fast.last_convolution_weight": "ConvWeightGrad",
    "fast.last_lrn": "LRN",
    "fast.last_pooling": "AveragePool GlobalAveragePool GlobalMaxPool MaxPool",
    "fast.last_winograd": "Conv ConvAct ConvAdd ConvAddAct",
    "fast.linear": "Gemm GemmAct MatMul MatMulAdd MatMulAddAct",
    "fast.local_response": "LRN",
    "fast.losses": "SoftmaxCrossEntropy SoftmaxCrossEntropyGrad",
    "fast.movement": (
        "Concat ConstantOfShape DepthToSpace Expand Flatten Identity Reshape SpaceToDepth Split Squeeze Tile "
        "Transpose Unsqueeze"
    ),
    "fast.normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization RMSNormalization"
    ),
    "fast.normalization_grad": "LayerNormalizationGrad RMSNormalizationGrad",
    "fast.optimizers": "AdagradUpdate AdamUpdate GlobalNorm LambUpdate LionUpdate RMSpropUpdate SGDUpdate",
    "fast.pointwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
        "Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid "
        "HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
        "Reciprocal Region Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish "
        "Tan Tanh ThresholdedRelu Where Xor"
    ),
    "fast.pooling": "AveragePool GlobalAveragePool GlobalMaxPool MaxPool",
    "fast.pooling_grad": "AveragePoolGrad MaxPoolGrad",
    "fast.products": "Gemm GemmAct MatMul MatMulAdd MatMulAddAct",
    "fast.quantized": "MatMulInteger QLinearMatMul",
    "fast.quantized_convolution": "ConvInteger QLinearConv",
    "fast.quantized_tensors": "DequantizeLinear QuantizeLinear",
    "fast.random": "Dropout",
    "fast.recurrent": "GRU LSTM RNN",
    "fast.recurrent_grad": "RecurrentGrad",
    "fast.reduction": (
        "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "fast.resize": "Resize",
    "fast.scatter": "ScatterElements ScatterND TensorScatter",
    "fast.softmax": "LogSoftmax Softmax",
}
"""The ops of each module, in the order in which kernels are registered. Modules that start with `_` hold helpers."""


def families() -> list[KernelFamily]:
    """Every module's kernels, references first."""
    package = __name__.rpartition(".")[0]
    return [KernelFamily(f"{package}.{module}", "cpu", frozenset(ops.split())) for module, ops in OPS.items()]


def all_kernels() -> list[Kernel]:
    """Every kernel, imported."""
    return list(load_kernels(families()))
