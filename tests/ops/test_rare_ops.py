"""Types of spectra, random draws, text, bits, unpooling and deformable convolution, and what each of them refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, Op, TensorType, Value, as_tuple, is_unknown, symbol
from aicore.ops.bits import BitCast
from aicore.ops.deformable import DeformConv
from aicore.ops.ngrams import TfIdfVectorizer
from aicore.ops.random import DrawKey, DrawNormal, DrawUniform
from aicore.ops.spectral import DFT, STFT, MelWeightMatrix
from aicore.ops.strings import RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from aicore.ops.unpooling import MaxUnpool

KEY = ("uint32", 2)
B, L = symbol("B"), symbol("L")
UNKNOWN = Value("x", TensorType("float32"))


def build(op: Op, *operands: Any) -> tuple[Op, tuple[Value, ...]]:
    """The node's op and results; a tuple is an input's dtype and dims, an array a constant."""
    builder = Builder()
    values = [_value(builder, i, o) for i, o in enumerate(operands)]
    results = as_tuple(builder.apply(op, *values))
    return builder.nodes[-1].op, results


def _value(builder: Builder, index: int, operand: Any) -> Value | None:
    if operand is None or isinstance(operand, Value):
        return operand
    if isinstance(operand, tuple):
        return builder.input(f"x{index}", operand[0], operand[1:])
    return builder.constant(np.asarray(operand))


def shape(op: Op, *operands: Any) -> Any:
    return build(op, *operands)[1][0].shape


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (DFT(), (("float32", 2, 5, 1),), (2, 5, 2)),
        (DFT(axis=0), (("float32", "B", 5, 2),), (B, 5, 2)),
        (DFT(dft_length=8), (("float32", 2, 5, 1),), (2, 8, 2)),
        (DFT(), (("float32", 2, 5, 3, 1), [8], [1]), (2, 8, 3, 2)),
        (DFT(onesided=1), (("float32", 2, 5, 1),), (2, 3, 2)),
        (DFT(onesided=1), (("float32", 2, "L", 1),), (2, L // 2 + 1, 2)),
        (DFT(onesided=1, inverse=1), (("float32", 2, 3, 2),), (2, 4, 1)),
        (DFT(onesided=1, inverse=1, dft_length=5), (("float32", 2, 3, 2),), (2, 5, 1)),
        (STFT(frame_step=2), (("float32", "B", 10, 1), None, ("float32", 4)), (B, 4, 3, 2)),
        (STFT(onesided=0, frame_step=2), (("float32", 1, "L", 2), None, None, 4), (1, (L - 4) // 2 + 1, 4, 2)),
        (STFT(frame_step=2), (("float32", 1, 10, 1),), (1, 1, 6, 2)),
        (MelWeightMatrix(), (8, 16, 8192, np.float32(0), np.float32(4096)), (9, 8)),
        (DrawNormal(shape=(2, 3)), (KEY,), (2, 3)),
        (DrawUniform(), (KEY, [4]), (4,)),
        (DrawKey(), (), (2,)),
        (StringConcat(), (("string", 2, 1), ("string", 3)), (2, 3)),
        (RegexFullMatch("a"), (("string", "B"),), (B,)),
        (BitCast("int32"), (("float32", "B", 3),), (B, 3)),
        (MaxUnpool((2, 2), strides=(2, 2)), (("float32", 1, 2, 3, "L"), ("int64", 1, 2, 3, "L")), (1, 2, 6, L * 2)),
        (MaxUnpool((2,)), (("float32", 1, 2, 3), ("int64", 1, 2, 3), [1, 2, 9]), (1, 2, 9)),
        (DeformConv(), (("float32", "B", 2, 5, 5), ("float32", 3, 2, 2, 2), ("float32", "B", 8, 4, 4)), (B, 3, 4, 4)),
    ],
)
def test_dims(op: Op, operands: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert shape(op, *operands) == expected


def test_sizes_that_depend_on_data() -> None:
    for op, operands, rank in (
        (DFT(), (("float32", 2, 5, 1), ("int64",)), 3),
        (DFT(), (("float32", 2, 5, 1), None, ("int64",)), 3),
        (STFT(), (("float32", 2, 5, 1), ("int64",)), 4),
        (MelWeightMatrix(), (("int64",),) * 3 + (("float32",),) * 2, 2),
        (DrawNormal(), (KEY, ("int64", 3)), 3),
        (StringNormalizer(), (("string", 4),), 1),
        (StringNormalizer(), (("string", 1, 4),), 2),
        (MaxUnpool((2,)), (("float32", 1, 1, 3), ("int64", 1, 1, 3), ("int64", 3)), 3),
    ):
        found = shape(op, *operands)
        assert len(found) == rank, op
        assert any(map(is_unknown, found)), op


def test_unknown_ranks() -> None:
    assert shape(DFT(), UNKNOWN) is None
    assert len(shape(STFT(frame_step=1), UNKNOWN)) == 4
    assert shape(MaxUnpool((2,)), UNKNOWN, ("int64", 1, 1, 3)) is None


def test_splits_have_two_outputs() -> None:
    parts, counts = build(StringSplit(), ("string", "B", 3))[1]
    assert (parts.dtype, parts.shape[:2], len(parts.shape)) == ("string", (B, 3), 3)
    assert counts.type == TensorType("int64", (B, 3))


def test_draws_of_one_key_are_pure_and_keys_are_not() -> None:
    assert DrawNormal().pure
    assert not DrawKey().pure


FLOAT, SIGNAL = ("float32", 1, 1, 3), ("float32", 2, 5, 1)
POOL = {"ngram_counts": (0, 2), "ngram_indexes": (0, 1, 2), "pool_int64s": (5, 6, 5, 6)}
DEFORMED = (("float32", 1, 2, 5, 5), ("float32", 3, 2, 2, 2))


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (DFT(axis=2), (SIGNAL,), "axis 2 is that of real and imaginary parts"),
        (DFT(axis=3), (SIGNAL,), "axis 3 is out of range"),
        (DFT(dft_length=0), (SIGNAL,), "dft_length is 0"),
        (DFT(), (SIGNAL, ("float32",)), "dft_length is float32.., wants one int32 or int64"),
        (DFT(), (SIGNAL, None, ("float32",)), "the axis is float32.., wants one int32 or int64"),
        (DFT(), (("float32", 2, 5, 3),), "3 parts of a number, wants 1 or 2"),
        (DFT(onesided=1), (("float32", 2, 5, 2),), "2 parts of a number, wants 1"),
        (DFT(onesided=1, inverse=1), (SIGNAL,), "1 parts of a number, wants 2"),
        (DFT(), (("float32", 1),), "wants a signal and an axis"),
        (DFT(), (("int32", 2, 5, 1),), "%x0 has element type int32"),
        (STFT(), (SIGNAL,), "frame_step is missing"),
        (STFT(frame_step=0), (SIGNAL,), "frame_step is 0"),
        (STFT(frame_step=1), (("float32", 5, 1),), "%x0 has rank 2, wants 3"),
        (STFT(frame_step=1), (("float32", 2, 5, 2),), "2 parts of a number, wants 1"),
        (STFT(frame_step=1), (SIGNAL, None, ("float32", 4), 3), "has not the frame length, 3"),
        (STFT(frame_step=1), (SIGNAL, None, ("float32", 6)), "5 samples are no frame of 6"),
        (STFT(frame_step=1), (SIGNAL, None, ("float64", 4)), "different dtypes"),
        (MelWeightMatrix(), (8, 16, 8192, np.float32(0)), "upper_edge_hertz is missing"),
        (MelWeightMatrix(), (8, 16, 8192, 0, ("int64",)), "upper_edge_hertz is int64.., wants a scalar"),
        (MelWeightMatrix("bool"), (8, 16, 8192, np.float32(0), np.float32(1)), "output_datatype is bool"),
        (MelWeightMatrix(), (-1, 16, 8192, np.float32(0), np.float32(1)), "num_mel_bins is -1"),
        (MelWeightMatrix(), (8, 0, 8192, np.float32(0), np.float32(1)), "dft_length is 0"),
        (DrawNormal(shape=(2,)), (("int32", 2),), "the key is int32.2., wants uint32"),
        (DrawNormal("int32", shape=(2,)), (KEY,), "dtype is int32"),
        (DrawNormal(), (KEY,), "the shape is missing"),
        (DrawNormal(shape=(2, -1)), (KEY,), "has a negative dim"),
        (StringNormalizer(), (("string", 2, 3),), "wants .C,. or .1, C."),
        (StringNormalizer(), (("string", 1, 2, 3),), "rank 3"),
        (StringNormalizer(), (FLOAT,), "element type float32"),
        (StringConcat(), (("string", 2), ("string", 3)), "do not broadcast"),
        (StringConcat(), (("string", 2), ("float32", 2)), "element type float32"),
        (StringSplit(maxsplit=-1), (("string", 2),), "maxsplit is -1"),
        (StringSplit(), (FLOAT,), "element type float32"),
        (RegexFullMatch(), (FLOAT,), "element type float32"),
        (BitCast("int16"), (FLOAT,), "float32 has 32 bits, int16 has 16"),
        (BitCast("int8"), (("int4", 3),), "int4 has 4 bits, int8 has 8"),
        (MaxUnpool(), (FLOAT, ("int64", 1, 1, 3)), "kernel_shape is empty"),
        (MaxUnpool((2, 2)), (FLOAT, ("int64", 1, 1, 3)), "%x0 has rank 3, the kernel wants 4"),
        (MaxUnpool((2,), strides=(0,)), (FLOAT, ("int64", 1, 1, 3)), "strides .0,. has an entry below 1"),
        (MaxUnpool((2,), (1,)), (FLOAT, ("int64", 1, 1, 3)), "pads .1,. has 1 entries, wants 2"),
        (MaxUnpool((2,)), (FLOAT, ("int64", 1, 1, 4)), "have different shapes"),
        (MaxUnpool((2,)), (FLOAT, ("float32", 1, 1, 3)), "want int32 or int64"),
        (MaxUnpool((2,)), (FLOAT, ("int64", 1, 1, 3), [1, 9]), "output_shape .1, 9. has not 3 entries"),
        (MaxUnpool((2,)), (("int32", 1, 1, 3), ("int64", 1, 1, 3)), "element type int32"),
        (DeformConv(), (*DEFORMED, ("float32", 1, 4, 4, 4)), "%x2 has shape .1, 4, 4, 4., wants .1, 8, 4, 4."),
        (DeformConv(), (*DEFORMED, ("float32", 1, 8, 4, 4), None, ("float32", 1, 8, 4, 4)), "wants .1, 4, 4, 4."),
        (DeformConv(offset_group=3), (*DEFORMED, ("float32", 1, 8, 4, 4)), "2 channels do not divide into 3 groups"),
        (DeformConv(offset_group=0), (*DEFORMED, ("float32", 1, 8, 4, 4)), "offset_group is 0"),
        (TfIdfVectorizer(**POOL), (FLOAT,), "element type float32"),
        (TfIdfVectorizer(**POOL), (("int64", 1, 2, 3),), "rank 3"),
        (TfIdfVectorizer("TF", 2, 1, **POOL), (("int64", 3),), "min_gram_length <= max_gram_length"),
        (TfIdfVectorizer("TF", 1, 1, -1, **POOL), (("int64", 3),), "max_skip_count is -1"),
        (TfIdfVectorizer(**POOL | {"ngram_indexes": ()}), (("int64", 3),), "ngram_indexes are empty"),
        (TfIdfVectorizer(**POOL | {"ngram_indexes": (0, 1)}), (("int64", 3),), "not one n-gram for each"),
        (
            TfIdfVectorizer(**POOL | {"ngram_counts": (0, 3)}),
            (("int64", 3),),
            "elements 3 to 4 of the pool are no 2-gr",
        ),
        (TfIdfVectorizer(**POOL, weights=(1.0,)), (("int64", 3),), "1 weights for 3 n-grams"),
        (TfIdfVectorizer(**POOL, pool_strings=("a",)), (("int64", 3),), "both pool_int64s and pool_strings"),
    ],
)
def test_refused(op: Op, operands: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        build(op, *operands)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (StringNormalizer("TITLE"), (("string", 2),), "case_change_action is 'TITLE'"),
        (StringNormalizer(locale="tr_TR"), (("string", 2),), "locale 'tr_TR' is not supported"),
        (RegexFullMatch(r"(a)\1"), (("string", 2),), "not of RE2"),
        (RegexFullMatch("(?=a)a"), (("string", 2),), "not of RE2"),
        (RegexFullMatch(r"a(?<!b)"), (("string", 2),), "not of RE2"),
        (RegexFullMatch("(a"), (("string", 2),), "cannot be read"),
        (BitCast("string"), (FLOAT,), "cannot read the bits of float32 as string"),
        (BitCast("int64"), (("string", 2),), "cannot read the bits of string as int64"),
        (BitCast("int99"), (FLOAT,), "cannot read the bits of float32 as int99"),
        (TfIdfVectorizer("BM25", **POOL), (("int64", 3),), "mode is 'BM25'"),
    ],
)
def test_unsupported(op: Op, operands: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build(op, *operands)


def test_an_escaped_backslash_before_a_digit_is_no_reference() -> None:
    assert shape(RegexFullMatch(r"a\\1(?:b|c)(?P<name>d)"), ("string", 2)) == (2,)


def test_resolved_fields() -> None:
    operands = (("float32", 1, 2, 3), ("int64", 1, 2, 3))
    assert build(MaxUnpool((2,)), *operands)[0] == MaxUnpool((2,), (0, 0), (1,))
    op, _ = build(DeformConv(), *DEFORMED, ("float32", 1, 8, 4, 4))
    assert op == DeformConv((1, 1), 1, (2, 2), 1, (0, 0, 0, 0), (1, 1))


def test_costs() -> None:
    builder = Builder()
    x, w, offset = (
        builder.input(name, "float32", dims)
        for name, dims in (("x", (1, 2, 5, 5)), ("w", (3, 2, 2, 2)), ("o", (1, 8, 4, 4)))
    )
    flops, moved = DeformConv().cost(x, w, offset)
    assert flops == 3 * 16 * 2 * 8 + 8 * 16 * 2 * 4  # a plain convolution, and four numbers for each that is read
    assert moved == 4 * (50 + 24 + 128 + 48)
    assert DFT().cost(builder.input("s", "float32", (2, 5, 1)))[0] > 0
    assert STFT(frame_step=2).cost(builder.input("s", "float32", (2, 5, 1)))[0] > 0
