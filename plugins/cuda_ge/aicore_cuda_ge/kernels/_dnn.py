"""cuDNN, where it is installed: found without being loaded, loaded when first needed, never required.

Its older functions are used, which take one algorithm by name: a description is a few numbers, and what they need fits
in one launch. The numbers are those of cudnn_ops.h and cudnn_cnn.h in version 9, whose headers are not there when this
plugin is built. The filter of a convolution is `w` in this file, its output `y`.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache

from aicore.errors import ExecutionError
from aicore_cuda_ge.kernels._nvidia import library_file, loaded

MISSING = "takes cuDNN 9, which is not installed; `pip install nvidia-cudnn-cu13` brings it"

_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
"""cudnnDataType_t."""
_CHANNELS_FIRST, _CHANNELS_LAST = 0, 1
"""cudnnTensorFormat_t."""
_CROSS_CORRELATION = 1
"""cudnnConvolutionMode_t: taps in the order of the image, as ONNX has them."""
_TENSOR_CORES, _FLOAT32_ONLY = 1, 3
"""cudnnMathType_t: CUDNN_TENSOR_OP_MATH, which is TF32 for float32; CUDNN_FMA_MATH."""
_NOTHING_AFTER, _KEEP_NAN = 5, 1
"""cudnnActivationMode_t, cudnnNanPropagation_t."""
ALGORITHMS = {
    "forward": {"precomputed": 1, "fft": 4, "fft_tiles": 5, "winograd_apart": 7},
    "images": {"plain": 1, "fft_tiles": 3, "winograd_apart": 5},
    "weights": {"plain": 1, "fft_tiles": 6, "winograd_apart": 5},
}
"""By direction, in which cuDNN works: cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t and
cudnnConvolutionBwdFilterAlgo_t. All of these add up in a fixed order."""


@dataclass(frozen=True)
class Description:
    """A convolution of images of two spatial axes.

    w: (maps of all groups, channels of a group, two kernel sizes). channels_last: of images, results and weights.
    tf32: float32 may be rounded to it. algorithm: key of ALGORITHMS of its direction, which is `forward`, or `images`
    or `weights` for the gradient of these.
    """

    dtype: str
    tf32: bool
    channels_last: bool
    algorithm: str
    images: int
    channels: int
    size: tuple[int, int]
    w: tuple[int, int, int, int]
    out: tuple[int, int]
    pad: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    direction: str = "forward"


@dataclass(frozen=True)
class Prepared:
    """A convolution that the library has been told of. Addresses in the order of DnnConvolution; they stay valid.

    A gradient takes the place of the convolution: its operands, in the order of the library, are x and w there,
    and its result is y. workspace: bytes that the library wants.
    """

    functions: tuple[int, int, int]
    objects: tuple[int, int, int, int, int, int, int]
    algorithm: int
    workspace: int


@cache
def library_path() -> str:
    """Where the library is; empty when there is none. Does not load it."""
    return library_file(("libcudnn.so.9",), ("cudnn/lib", "cu13/lib"))


@lru_cache(maxsize=4096)
def prepared(what: Description, device: int) -> Prepared | None:
    """Tells the library of a convolution; None when it cannot do it by this algorithm.

    Objects are kept as long as the process: captured graphs refer to them. Call it with the device current.
    Raises ExecutionError when the library cannot be used at all.
    """
    with _LOCK:
        return _prepare(what, _handle(device))


_LOCK = threading.Lock()


def _prepare(what: Description, handle: c_void_p) -> Prepared | None:
    library, dtype = _library(), _TYPES[what.dtype]
    layout = _CHANNELS_LAST if what.channels_last else _CHANNELS_FIRST
    maps = what.w[0]
    x, y, bias, w, convolution, after = (_made(kind) for kind in ("Tensor", "Tensor", "Tensor", "Filter", *_OTHERS))
    for tensor, sizes in ((x, (what.images, what.channels, *what.size)), (y, (what.images, maps, *what.out))):
        _check(library.cudnnSetTensor4dDescriptor(tensor, layout, dtype, *sizes), "describing images")
    _check(library.cudnnSetTensor4dDescriptor(bias, layout, dtype, 1, maps, 1, 1), "describing a bias")
    _check(library.cudnnSetFilter4dDescriptor(w, dtype, layout, *what.w), "describing weights")
    places = (*what.pad, *what.stride, *what.dilation)
    described = library.cudnnSetConvolution2dDescriptor(convolution, *places, _CROSS_CORRELATION, _TYPES["float32"])
    _check(described, "describing a convolution")
    _check(library.cudnnSetConvolutionGroupCount(convolution, what.groups), "setting groups")
    math = _TENSOR_CORES if what.tf32 or what.dtype != "float32" else _FLOAT32_ONLY
    _check(library.cudnnSetConvolutionMathType(convolution, math), "setting the precision")
    _check(library.cudnnSetActivationDescriptor(after, _NOTHING_AFTER, _KEEP_NAN, ctypes.c_double(0)), "an activation")
    algorithm, workspace = ALGORITHMS[what.direction][what.algorithm], c_size_t()
    name = {"forward": "Forward", "images": "BackwardData", "weights": "BackwardFilter"}[what.direction]
    first, second, result = {"forward": (x, w, y), "images": (w, y, x), "weights": (x, y, w)}[what.direction]
    asked = getattr(library, f"cudnnGetConvolution{name}WorkspaceSize")
    if asked(handle, first, second, convolution, result, algorithm, byref(workspace)) != 0:
        return None
    functions = (
        library.cudnnSetStream,
        getattr(library, f"cudnnConvolution{name}"),
        library.cudnnConvolutionBiasActivationForward,
    )
    objects = (handle, first, second, result, bias, convolution, after)
    return Prepared(
        functions=tuple(int(ctypes.cast(f, c_void_p).value or 0) for f in functions),  # type: ignore[arg-type]  # three
        objects=tuple(int(o.value or 0) for o in objects),  # type: ignore[arg-type]  # seven
        algorithm=algorithm,
        workspace=int(workspace.value),
    )


_OTHERS = ("Convolution", "Activation")


def _made(kind: str) -> c_void_p:
    made = c_void_p()
    _check(getattr(_library(), f"cudnnCreate{kind}Descriptor")(byref(made)), f"making a descriptor of {kind}")
    return made


@cache
def _handle(device: int) -> c_void_p:
    """Of one device, which must be current."""
    handle = c_void_p()
    _check(_library().cudnnCreate(byref(handle)), f"opening cuDNN on device {device}")
    return handle


@cache
def _library() -> ctypes.CDLL:
    """Raises ExecutionError when it is not there, or cannot be loaded."""
    return loaded(library_path(), "cuDNN 9 is not installed; `pip install nvidia-cudnn-cu13` brings it")


def _check(status: int, doing: str) -> None:
    if status != 0:
        raise ExecutionError(f"{doing} failed: cuDNN says {status}")
