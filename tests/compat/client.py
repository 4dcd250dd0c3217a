"""Client code that runs on the real onnxruntime and on the stand-in, and what both are compared by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests import onnx_models as models

Client = Callable[[Any], Any]
X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
K = np.array([[1, -2]], np.int64)
S = np.array(2.0, np.float32)


def feed(**changes: Any) -> dict[str, Any]:
    return {"x": X, "k": K, "s": S, **changes}


def session(ort: Any, model: bytes | None = None, **options: Any) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(model or models.mixed(), settings, providers=["CPUExecutionProvider"], **options)


def outcome(client: Client, ort: Any) -> Any:
    """What the client gets, or the classes of the error that it has to catch."""
    try:
        return client(ort)
    except Exception as error:  # noqa: BLE001  # its class is what is compared
        return [cls.__name__ for cls in type(error).__mro__]


def same(a: Any, b: Any) -> None:
    np.testing.assert_equal(a, b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
