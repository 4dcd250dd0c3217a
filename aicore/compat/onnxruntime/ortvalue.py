"""OrtValue: a tensor that a client holds, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.compat.onnxruntime.errors import InvalidArgument, Refused
from aicore.compat.onnxruntime.providers import available_providers, provider_name
from aicore.ir import dtype_name, numpy_dtype

Array = np.ndarray[Any, Any]

_ELEMENT_NAMES = {
    "float32": "float",
    "float64": "double",
    **{f"float8_{kind}": f"float8{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
    "float4_e2m1fn": "float4e2m1",
}
# TensorProto.DataType of onnx.proto, which clients pass and read as numbers.
_ELEMENT_CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
    "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22,
    "float4_e2m1fn": 23, "float8_e8m0fnu": 24, "uint2": 25, "int2": 26,
}  # fmt: skip
_DTYPE_OF_CODE = {code: dtype for dtype, code in _ELEMENT_CODES.items()}


def tensor_type_name(dtype: str) -> str:
    """How onnxruntime writes a tensor's type: `float32` is `tensor(float)`."""
    return f"tensor({_ELEMENT_NAMES.get(dtype, dtype)})"


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """The NumPy dtype that a client means: a dtype, or a number of TensorProto.DataType.

    Raises InvalidArgument when it is neither.
    """
    if isinstance(element_type, int):
        if element_type not in _DTYPE_OF_CODE:
            raise InvalidArgument(f"{element_type} is no element type of ONNX")
        return numpy_dtype(_DTYPE_OF_CODE[element_type])
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype


def check_device(device_type: str) -> None:
    """Raise Refused unless the device can be used; whatever it is, tensors of clients stay on the host."""
    if device_type != "cpu" and provider_name(device_type) not in available_providers():
        raise Refused(f"no plugin drives device {device_type!r}; available: {', '.join(available_providers())}")


class OrtValue:
    """A tensor that a client holds."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, *_: Any) -> OrtValue:
        """A tensor that shares the memory of the array, if that is dense."""
        check_device(device_type)
        return OrtValue(np.asarray(numpy_obj, order="C"))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """A tensor of zeros."""
        check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), element_dtype(element_type)))

    def numpy(self) -> Array:
        """A copy of the numbers."""
        return self._array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._array.__dlpack_device__()
        return int(kind), int(index)

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return tensor_type_name(dtype_name(self._array.dtype))

    def element_type(self) -> int:
        """The number of TensorProto.DataType."""
        return _ELEMENT_CODES[dtype_name(self._array.dtype)]

    def device_name(self) -> str:
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def update_inplace(self, np_arr: Any) -> None:
        """Overwrite the numbers. Raises InvalidArgument when dtype or shape would change."""
        new = np.asarray(np_arr)
        if new.shape != self._array.shape or new.dtype != self._array.dtype:
            raise InvalidArgument(
                f"the tensor is {self._array.dtype}{self.shape()}, it cannot become {new.dtype}{list(new.shape)}"
            )
        np.copyto(self._array, new)


def memory_of(value: OrtValue) -> Array:
    """The array whose memory the tensor is."""
    return value._array
