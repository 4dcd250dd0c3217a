"""cuBLASLt, where it is installed: found without being loaded, loaded when first needed, never required.

The numbers are those of cublasLt.h in versions 12 and 13, whose headers are not there when this plugin is built.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from aicore.errors import ExecutionError
from aicore_cuda_ge.kernels._nvidia import library_file, loaded

MISSING = "takes cuBLASLt, which is not installed; `pip install nvidia-cublas` brings that of CUDA 13"

_VERSIONS = (13, 12)
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""cudaDataType."""
COMPUTE_FLOAT32, COMPUTE_TF32 = 68, 77
"""cublasComputeType_t: CUBLAS_COMPUTE_32F and CUBLAS_COMPUTE_32F_FAST_TF32."""
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
"""cublasLtMatmulDescAttributes_t."""
_PLAIN, _ADD_BIAS = 1, 4
"""cublasLtEpilogue_t."""
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
"""cublasLtMatrixLayoutAttribute_t."""
_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes_t."""
_ORDERED_REDUCTIONS = 2 | 4
"""cublasLtReductionScheme_t without the one in place, whose order of additions is left open."""
_ALIGNMENT = 64
"""Bytes, of every operand and result."""
_ALGORITHM_WORDS = 8


class _Choice(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * _ALGORITHM_WORDS),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Matrix:
    """In memory by columns: `rows` numbers side by side, `columns` times, `step` elements apart.

    batch_step: elements between the matrices of a batch, 0 where they are the same one.
    """

    rows: int
    columns: int
    step: int
    batch_step: int = 0


@dataclass(frozen=True)
class Description:
    """y = alpha * left @ right + beta * c by columns, where c has the shape and place of y.

    turn_left, turn_right: the operand is the transpose of what is stored. bias: of as many numbers as y has rows, added
    to each column. compute: COMPUTE_FLOAT32 or COMPUTE_TF32. workspace: bytes, at most.
    """

    dtype: str
    compute: int
    left: Matrix
    right: Matrix
    y: Matrix
    turn_left: bool
    turn_right: bool
    batch: int
    bias: bool
    workspace: int


@dataclass(frozen=True)
class Prepared:
    """A product that the library has been told of. Addresses as the struct BlasProduct has them; they stay valid."""

    functions: tuple[int, int]
    objects: tuple[int, ...]
    algorithm: tuple[int, ...]
    workspace: int


@cache
def library_path() -> str:
    """Where the library is; empty when there is none. Does not load it."""
    return library_file([f"libcublasLt.so.{version}" for version in _VERSIONS], ("cu13/lib", "cublas/lib"))


@lru_cache(maxsize=4096)
def prepared(what: Description, device: int) -> Prepared | None:
    """Tells the library of a product and has it choose how; None when it knows no way.

    Objects are kept as long as the process: captured graphs refer to them. Call it with the device current.
    Raises ExecutionError when the library refuses.
    """
    with _LOCK:
        return _prepare(what, _handle(device))


_LOCK = threading.Lock()


def _prepare(what: Description, handle: c_void_p) -> Prepared | None:
    library = _library()
    product = c_void_p()
    _check(library.cublasLtMatmulDescCreate(byref(product), what.compute, _TYPES["float32"]), "describing a product")
    for attribute, turned in ((_TRANSPOSE_A, what.turn_left), (_TRANSPOSE_B, what.turn_right)):
        _set(library.cublasLtMatmulDescSetAttribute, product, attribute, c_int32(turned))
    _set(library.cublasLtMatmulDescSetAttribute, product, _EPILOGUE, c_uint32(_ADD_BIAS if what.bias else _PLAIN))
    if what.bias:  # an address like those to come: the choice depends on how it is aligned
        _set(library.cublasLtMatmulDescSetAttribute, product, _BIAS_POINTER, c_uint64(_ALIGNMENT))
    layouts = [_layout(matrix, what) for matrix in (what.left, what.right, what.y)]
    choice = _choose(handle, product, layouts, what.workspace)
    if choice is None:
        return None
    left, right, y = layouts
    functions = (library.cublasLtMatmul, library.cublasLtMatmulDescSetAttribute)
    return Prepared(
        functions=tuple(_address(f) for f in functions),  # type: ignore[arg-type]  # two go in, two come out
        objects=tuple(int(o.value or 0) for o in (handle, product, right, left, y)),
        algorithm=tuple(c_int64(word).value for word in choice.algorithm),
        workspace=int(choice.workspace),
    )


def _layout(matrix: Matrix, what: Description) -> c_void_p:
    library, layout = _library(), c_void_p()
    sizes = (c_uint64(matrix.rows), c_uint64(matrix.columns), c_int64(matrix.step))
    _check(library.cublasLtMatrixLayoutCreate(byref(layout), _TYPES[what.dtype], *sizes), "describing a matrix")
    if what.batch > 1:
        _set(library.cublasLtMatrixLayoutSetAttribute, layout, _BATCH_COUNT, c_int32(what.batch))
        _set(library.cublasLtMatrixLayoutSetAttribute, layout, _BATCH_STRIDE, c_int64(matrix.batch_step))
    return layout


def _choose(handle: c_void_p, product: c_void_p, layouts: list[c_void_p], workspace: int) -> _Choice | None:
    library, preference, choice, found = _library(), c_void_p(), _Choice(), c_int()
    left, right, y = layouts
    _check(library.cublasLtMatmulPreferenceCreate(byref(preference)), "asking for an algorithm")
    try:
        change = library.cublasLtMatmulPreferenceSetAttribute
        _set(change, preference, _WORKSPACE, c_uint64(workspace))
        _set(change, preference, _REDUCTIONS, c_uint32(_ORDERED_REDUCTIONS))
        for alignment in _ALIGNMENTS:
            _set(change, preference, alignment, c_uint32(_ALIGNMENT))
        status = library.cublasLtMatmulAlgoGetHeuristic(
            handle, product, left, right, y, y, preference, 1, byref(choice), byref(found)
        )
    finally:
        library.cublasLtMatmulPreferenceDestroy(preference)
    return choice if status == 0 and found.value and choice.state == 0 else None


@cache
def _handle(device: int) -> c_void_p:
    """Of one device, which must be current."""
    handle = c_void_p()
    _check(_library().cublasLtCreate(byref(handle)), f"opening cuBLASLt on device {device}")
    return handle


@cache
def _library() -> ctypes.CDLL:
    """Raises ExecutionError when it is not there, or cannot be loaded."""
    return loaded(library_path(), "cuBLASLt is not installed; `pip install nvidia-cublas` brings it")


def _set(change: Any, target: c_void_p, attribute: int, value: Any) -> None:
    _check(change(target, attribute, byref(value), c_size_t(ctypes.sizeof(value))), f"setting attribute {attribute}")


def _address(function: Any) -> int:
    return int(ctypes.cast(function, c_void_p).value or 0)


def _check(status: int, doing: str) -> None:
    if status != 0:
        raise ExecutionError(f"{doing} failed: cuBLASLt says {status}")
