"""How far a result may be from the exact one, and why. Nothing here was widened to make a kernel pass.

Let u be the unit roundoff (2^-24 for float32). The standard model of arithmetic says that one operation has a relative
error of at most u, and n of them one after the other at most n u / (1 - n u), of the sum of the magnitudes of what is
added up (Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 to 4). So an element may be off by

    stores * u(result) * |result|  +  roundings * u(working) * magnitude  +  what is lost near zero

where `stores` roundings are to the type of the result (usually one, at the end; more are relative to the magnitude),
`roundings` happen in the working precision, and the magnitude is that of what is rounded. The working precision of
float16 and bfloat16 is float32: a backend that accumulates in 16 bits is refused on purpose. The last term is
half the distance between subnormal numbers of the result's type, and the smallest normal number of the working
precision, so that subnormal numbers of that may be flushed to zero.

Integers, bools and texts must be equal, whatever the op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import AicoreError
from aicore.ir import Builder, Op, as_tuple, is_fused
from aicore.ops.layout import ChannelsLast
from aicore.records import dataclass

Array = np.ndarray[Any, Any]
Count: TypeAlias = Callable[[Op, Sequence["Array | None"]], float]
"""(op, operands) -> how many operations follow each other in the working precision."""


class Magnitude(StrEnum):
    """What the roundings are relative to."""

    RESULT = "the result"
    OPERANDS = "the result and the operands, element by element"
    UNIT = "the result, the operands and 1"
    ABSOLUTE = "the result for the operands' absolute values"
    CONDITION = "how much the result changes with its operands"
    TERMS = "how much the result changes with each kind of operand, added up"
    LARGEST = "the largest number of the first operand"
    LAST = "the result for the absolute values of the last operand"


@dataclass(frozen=True)
class Tolerance:
    """What an op may be off by.

    roundings: in the working precision, beside those that the op's own cost counts; see `counted`.
    magnitude: what they are relative to.
    reason: the numerics behind both.
    counted: more roundings, which depend on sizes.
    stores: roundings to the type of the result; 0 for results that are copies of operands.
    stored: more of these, which depend on sizes.
    """

    roundings: float
    magnitude: Magnitude
    reason: str
    counted: Count | None = None
    stores: float = 1
    stored: Count | None = None

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded at all."""
        return not self.stores

    def count(self, op: Op, operands: Sequence[Array | None]) -> float:
        """All roundings in the working precision."""
        return self.roundings + (0.0 if self.counted is None else self.counted(op, operands))

    def count_stores(self, op: Op, operands: Sequence[Array | None]) -> float:
        """All roundings to the type of the result."""
        return self.stores + (0.0 if self.stored is None else self.stored(op, operands))


def tolerance_of(op: Op) -> Tolerance:
    """The op's own row of the table, else that of a base class, else the sum of its parts, else the most general.

    Where channels lie changes no number, so ChannelsLast has the row of what it holds.
    """
    if isinstance(op, ChannelsLast):
        return tolerance_of(op.inner)
    for cls in type(op).__mro__:
        if cls.__name__ in TABLE:
            return TABLE[cls.__name__]
    return _PARTS if is_fused(op) else _UNKNOWN


def kinds_of_operands(op: Op, count: int) -> list[int]:
    """For each of so many operands a number, which those share of which no result depends on two, as ops tell."""
    kind_of: Callable[[int], int] = getattr(op, "kind_of_operand", int)
    return [kind_of(index) for index in range(count)]


def _cost(op: Op, operands: Sequence[Array | None]) -> float:
    """Floating-point operations for one element of the largest result, as the op counts them."""
    builder = Builder()
    values = [None if array is None else builder.constant(array) for array in operands]
    try:
        types = as_tuple(op.infer(*values))
        size = max((t.size for t in types if t.is_static), default=0)  # type: ignore[type-var]
        flops = op.cost(*values)[0]
    except AicoreError:
        return _size(op, operands)
    return float(flops) / size if isinstance(flops, int) and isinstance(size, int) and size else 1.0


def _size(op: Op, operands: Sequence[Array | None]) -> float:
    """No result has more terms than the largest operand has elements."""
    return float(max((array.size for array in operands if array is not None), default=1))


def _extent(op: Op, operands: Sequence[Array | None]) -> float:
    """A coordinate is at most the longest axis; sixteen weights may be made of it."""
    data = operands[0]
    return 1.0 if data is None else 16.0 * max(data.shape, default=1)


def _recurrent(op: Op, operands: Sequence[Array | None]) -> float:
    """Each step adds up the inputs and the hidden state, and errors of earlier steps stay."""
    x, w, r = operands[:3]
    if x is None or w is None or r is None:
        return 1.0
    return float(x.shape[1 if getattr(op, "layout", 0) else 0] * (w.shape[-1] + r.shape[-1] + 16))


def _recurrent_gradient(op: Op, operands: Sequence[Array | None]) -> float:
    """Each step adds up the gradients of all gates, and errors of later steps reach all earlier ones."""
    r, gates = operands[:2]
    if r is None or gates is None:
        return 1.0
    return float(max(gates.shape[1:3], default=1) * (r.shape[1] + 32))


def _parts(op: Op, operands: Sequence[Array | None]) -> float:
    return 16.0 + _cost(op, operands)


def _update(op: Any, operands: Sequence[Array | None]) -> float:
    """Operations for one element of one tensor, however many tensors there are."""
    return float(op.flops)


def _updates(op: Op, operands: Sequence[Array | None]) -> float:
    updates = operands[2] if len(operands) > 2 else None
    return 0.0 if updates is None else float(updates.size)


def _operands(op: Op, operands: Sequence[Array | None]) -> float:
    return float(len(operands))


_EXACT = "copies, selects or compares: every bit is that of an operand"
_IEEE = "IEEE 754 asks for the correctly rounded result"
_LIBRARY = "libraries document errors of 1 to 4 units in the last place for float32, and 8 for the power"
_SUM = "each term is rounded once and added to partial sums at most as large as the sum of the absolute terms"


def _rows(names: str, tolerance: Tolerance) -> dict[str, Tolerance]:
    return dict.fromkeys(names.split(), tolerance)


TABLE: Mapping[str, Tolerance] = {
    **_rows(
        "Relu Clip ThresholdedRelu Max Min ConstantOfShape EyeLike OneHot Trilu Abs Sign Neg Ceil Floor Round Gather "
        "GatherElements GatherND Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Not BitwiseAnd BitwiseOr "
        "BitwiseXor BitwiseNot BitShift Where IsNaN IsInf Transpose Expand Tile Concat Split ArgMax ArgMin TopK "
        "MaxPool GlobalMaxPool DepthToSpace SpaceToDepth ReverseSequence ReduceMax ReduceMin TensorScatter NonZero "
        "Unique Compress Shape Size Identity Reshape Flatten Squeeze Unsqueeze Slice Pad CenterCropPad Hardmax "
        "NonMaxSuppression DrawKey MaxUnpool BitCast StringNormalizer StringConcat StringSplit RegexFullMatch "
        "TfIdfVectorizer QuantizeLinear DynamicQuantizeLinear "
        "MatMulInteger QLinearMatMul ConvInteger QLinearConv",
        Tolerance(0, Magnitude.RESULT, _EXACT, stores=0),
    ),
    **_rows("Cast CastLike Add Sub Mul Div Reciprocal Sqrt", Tolerance(0, Magnitude.RESULT, _IEEE)),
    **_rows(
        "Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Pow",
        Tolerance(16, Magnitude.RESULT, _LIBRARY),
    ),
    "DequantizeLinear": Tolerance(
        1, Magnitude.RESULT, "an int32 is rounded to the type of the scale, then a product is"
    ),
    **_rows("LeakyRelu PRelu", Tolerance(1, Magnitude.RESULT, "alpha is rounded, then a product is")),
    **_rows("Sum Mean", Tolerance(1, Magnitude.ABSOLUTE, _SUM, _operands)),
    "Mod": Tolerance(2, Magnitude.OPERANDS, "the remainder of a truncated division is exact; adding b to it rounds"),
    "Range": Tolerance(2, Magnitude.OPERANDS, "start + i * delta: a product and a sum, which may cancel"),
    "Dropout": Tolerance(2, Magnitude.RESULT, "1 - ratio is rounded, then a quotient is"),
    **_rows(
        "Elu Selu Celu Gelu HardSigmoid HardSwish Mish Softplus Shrink",
        Tolerance(
            24, Magnitude.UNIT, "up to eight operations and two functions, on terms as large as x or 1 that cancel"
        ),
    ),
    **_rows(
        "Sigmoid Swish Softsign",
        Tolerance(24, Magnitude.CONDITION, "an exponential turns the rounding of its argument into one of its result"),
    ),
    **_rows(
        "MatMul Gemm Conv ConvTranspose Einsum AveragePool GlobalAveragePool ReduceSum ReduceMean ReduceL1 "
        "ReduceSumSquare SumTo Col2Im ConvWeightGrad AveragePoolGrad",
        Tolerance(4, Magnitude.ABSOLUTE, _SUM, _cost),
    ),
    **_rows(
        "MaxPoolGrad MaxPoolReluGrad",
        Tolerance(0, Magnitude.LAST, "sums of elements of dy; which ones, x tells without rounding", _cost),
    ),
    **_rows(
        "ScatterElements ScatterND",
        Tolerance(0, Magnitude.ABSOLUTE, "an element is stored after each update that hits it", stored=_updates),
    ),
    "CumSum": Tolerance(0, Magnitude.ABSOLUTE, _SUM, _size),
    **_rows("ReduceProd CumProd", Tolerance(0, Magnitude.RESULT, "each factor is one rounding more", _size)),
    **_rows(
        "ReduceL2 LpPool GlobalLpPool LpNormalization",
        Tolerance(32, Magnitude.RESULT, "sums of positive terms, without cancellation, between two functions", _size),
    ),
    **_rows(
        "ReduceLogSum ReduceLogSumExp Softmax LogSoftmax",
        Tolerance(
            32, Magnitude.CONDITION, "an exponential turns the rounding of its argument into one of its result", _size
        ),
    ),
    "SoftmaxCrossEntropy": Tolerance(
        32,
        Magnitude.LARGEST,
        "the largest logit is subtracted and the logarithm of a sum added: terms as large as the logits cancel",
        _size,
    ),
    "SoftmaxCrossEntropyGrad": Tolerance(
        32, Magnitude.CONDITION, "an exponential turns the rounding of its argument into one of its result", _size
    ),
    **_rows(
        "BatchNormalization LayerNormalization RMSNormalization InstanceNormalization GroupNormalization LRN "
        "MeanVarianceNormalization BatchNormalizationAct BatchNormalizationGrad LayerNormalizationGrad "
        "RMSNormalizationGrad",
        Tolerance(
            32, Magnitude.CONDITION, "statistics are sums; subtracting the mean cancels, as the condition tells", _size
        ),
    ),
    **_rows(
        "AddNormalization AddNormalizationSum",
        Tolerance(
            32,
            Magnitude.CONDITION,
            "a sum that may be stored in the result's type, then a normalisation",
            _size,
            stores=2,
        ),
    ),
    **_rows(
        "DFT STFT",
        Tolerance(
            32, Magnitude.CONDITION, "each result has the error of sums over the signal, as the condition tells", _size
        ),
    ),
    **_rows(
        "SGDUpdate RMSpropUpdate AdagradUpdate AdamUpdate LambUpdate LionUpdate",
        Tolerance(
            16,
            Magnitude.TERMS,
            "each element is a sum of terms made of one operand each, which may cancel: a rounding is relative to what "
            "is added, not to what is left; float16 and bfloat16 are computed in float32 and rounded once",
            _update,
        ),
    ),
    "DeformConv": Tolerance(64, Magnitude.CONDITION, "places are rounded, and so are the shares of elements", _cost),
    "MelWeightMatrix": Tolerance(16, Magnitude.UNIT, "computed in float64, whatever the result's type"),
    "DrawUniform": Tolerance(4, Magnitude.UNIT, "low + u * (high - low), where u is exact"),
    "DrawNormal": Tolerance(64, Magnitude.UNIT, "a logarithm, a root and a cosine of an angle that is rounded"),
    "Det": Tolerance(8, Magnitude.CONDITION, "elimination with pivots is backward stable in practice", _size),
    **_rows("RNN GRU LSTM", Tolerance(16, Magnitude.CONDITION, "errors of each step reach all later ones", _recurrent)),
    "RecurrentGrad": Tolerance(
        32, Magnitude.CONDITION, "errors of each step reach all earlier ones", _recurrent_gradient
    ),
    **_rows(
        "Resize GridSample AffineGrid RoiAlign",
        Tolerance(64, Magnitude.LARGEST, "coordinates as large as the image are rounded, and so are weights", _extent),
    ),
    **_rows(
        "If Loop Scan",
        Tolerance(64, Magnitude.CONDITION, "the body's own operations, each stored in its type", _size, stores=16),
    ),
}
"""Rows for the core ops by name; an op of a plugin that is named here, or derives from one, has the same row."""

_PARTS = Tolerance(
    0, Magnitude.CONDITION, "the roundings of the parts, each of which may be stored in the result's type", _parts, 4
)
_UNKNOWN = Tolerance(
    16, Magnitude.CONDITION, "nothing is known of the op but how its result depends on operands", _size
)
