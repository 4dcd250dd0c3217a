"""The exceptions that clients of onnxruntime catch, each also an AicoreError, and what becomes of aicore's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.message import DecodeError

from aicore.errors import (
    AicoreError,
    ExecutionError,
    GraphError,
    InferenceError,
    InputError,
    ModelError,
    PluginError,
    UnsupportedError,
)


class OrtError(AicoreError):
    """Root of the exceptions of this interface."""


class Fail(OrtError):
    """Anything that has no class of its own, and operands that contradict an op."""


class InvalidArgument(OrtError):
    """A feed or a requested name does not fit the model."""


class MissingInput(InvalidArgument, ValueError):
    """An input was not fed; onnxruntime raises a plain ValueError for it."""


class NoSuchFile(OrtError):
    """The model's file does not exist."""


class InvalidProtobuf(OrtError):
    """The model is no ONNX file."""


class InvalidGraph(OrtError):
    """The model breaks ONNX's rules."""


class Refused(OrtError):
    """Nothing that is installed can run a node of the model, or a client asks for what aicore lacks."""


Refused.__name__ = Refused.__qualname__ = "NotImplemented"  # a name that Python has another use for


class RuntimeException(OrtError):
    """A kernel failed."""


class EPFail(OrtError):
    """The device cannot be used."""


_RAISED: tuple[type[OrtError], ...] = (
    Fail,
    InvalidArgument,
    NoSuchFile,
    InvalidProtobuf,
    InvalidGraph,
    Refused,
    RuntimeException,
    EPFail,
)
_NEVER_RAISED = (
    "DeviceReset",
    "EngineError",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NotFound",
)
EXCEPTIONS: dict[str, type[OrtError]] = {
    **{cls.__name__: cls for cls in _RAISED},
    **{name: type(name, (OrtError,), {"__doc__": "Never raised here; clients name it."}) for name in _NEVER_RAISED},
}
"""Exceptions by the names under which clients import them."""

_BY_CAUSE: tuple[tuple[type[AicoreError], type[OrtError]], ...] = (
    (InputError, InvalidArgument),
    (InferenceError, Fail),
    (GraphError, InvalidGraph),
    (UnsupportedError, Refused),
    (ExecutionError, RuntimeException),
    (PluginError, EPFail),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise aicore's errors as the ones that clients of onnxruntime know; the message stays, the cause is kept."""
    try:
        yield
    except OrtError:
        raise
    except AicoreError as error:
        raise _counterpart(error)(str(error)) from error


def _counterpart(error: AicoreError) -> type[OrtError]:
    if isinstance(error, ModelError):
        return InvalidProtobuf if isinstance(error.__cause__, DecodeError | UnicodeDecodeError) else InvalidGraph
    return next((ours for theirs, ours in _BY_CAUSE if isinstance(error, theirs)), Fail)
