"""cuBLASLt for sums of int8 products, where it is installed: never required, and loaded when first needed.

The numbers are those of cublasLt.h in versions 12 and 13. On 8-bit integers the library takes the first matrix as the
transpose of what is stored and the second one as it is, whose depth and results side by side are multiples of four.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from aicore.errors import ExecutionError

_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_WHEELS = ("cu13/lib", "cublas/lib")
_SYSTEM = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_INT8, _INT32, _COMPUTE_INT32 = 3, 10, 72
"""cudaDataType, and cublasComputeType_t."""
_TRANSPOSE_LEFT = 3
"""cublasLtMatmulDescAttributes_t."""
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes_t."""
_ALIGNMENT = 64
WORKSPACE = 4 << 20
"""Bytes that the library may use, at most."""


class _Choice(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Prepared:
    """A product that the library was told of, as the struct LibraryParams has it; addresses stay valid."""

    matmul: int
    objects: tuple[int, ...]
    algorithm: tuple[int, ...]
    workspace: int


@cache
def library_path() -> str:
    """Where the library is, in NVIDIA's wheels or folders of the system; empty when there is none."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    places = [*(root / folder for root in roots for folder in _WHEELS), *map(Path, _SYSTEM)]
    return next((str(place / name) for place in places for name in _NAMES if (place / name).is_file()), "")


@lru_cache(maxsize=4096)
def prepared(rows: int, columns: int, depth: int, a_row: int, b_row: int, device: int) -> Prepared | None:
    """The product of a, `rows` rows of `a_row` bytes, and the rows of b; None when the library knows no way.

    Objects are kept as long as the process: captured graphs refer to them. Call it with the device current.
    Raises ExecutionError when the library refuses.
    """
    with _LOCK:
        library, product = _library(), c_void_p()
        handle = _handle(device)
        _check(library.cublasLtMatmulDescCreate(byref(product), _COMPUTE_INT32, _INT32), "describing a product")
        _set(library.cublasLtMatmulDescSetAttribute, product, _TRANSPOSE_LEFT, c_int32(1))
        left, right = _layout(_INT8, depth, columns, b_row), _layout(_INT8, depth, rows, a_row)
        y = _layout(_INT32, columns, rows, columns)
        choice = _choose(handle, product, left, right, y)
        if choice is None:
            return None
        return Prepared(
            matmul=int(ctypes.cast(library.cublasLtMatmul, c_void_p).value or 0),
            objects=tuple(int(o.value or 0) for o in (handle, product, left, right, y)),
            algorithm=tuple(c_int64(word).value for word in choice.algorithm),
            workspace=int(choice.workspace),
        )


_LOCK = threading.Lock()


def _layout(kind: int, rows: int, columns: int, step: int) -> c_void_p:
    """`rows` numbers side by side, `columns` times, `step` apart."""
    layout = c_void_p()
    sizes = (c_uint64(rows), c_uint64(columns), c_int64(step))
    _check(_library().cublasLtMatrixLayoutCreate(byref(layout), kind, *sizes), "describing a matrix")
    return layout


def _choose(handle: c_void_p, product: c_void_p, left: c_void_p, right: c_void_p, y: c_void_p) -> _Choice | None:
    library, preference, choice, found = _library(), c_void_p(), _Choice(), c_int()
    _check(library.cublasLtMatmulPreferenceCreate(byref(preference)), "asking for an algorithm")
    try:
        change = library.cublasLtMatmulPreferenceSetAttribute
        _set(change, preference, _WORKSPACE, c_uint64(WORKSPACE))
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
    path = library_path()
    if not path:
        raise ExecutionError("cuBLASLt is not installed; `pip install nvidia-cublas` brings it")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ExecutionError(f"{path} cannot be loaded: {error}") from error


def _set(change: Any, target: c_void_p, attribute: int, value: Any) -> None:
    _check(change(target, attribute, byref(value), c_size_t(ctypes.sizeof(value))), f"setting attribute {attribute}")


def _check(status: int, doing: str) -> None:
    if status != 0:
        raise ExecutionError(f"{doing} failed: cuBLASLt says {status}")
