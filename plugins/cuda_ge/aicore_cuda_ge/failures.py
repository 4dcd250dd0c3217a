"""What errors of CUDA mean to whoever runs a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aicore.errors import ExecutionError, OutOfMemoryError
from aicore_cuda_ge import _graph_executor as native


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Raise CudaError as what `failure` makes of it."""
    try:
        yield
    except native.CudaError as error:
        raise failure(error, doing) from error


def failure(error: native.CudaError, doing: str) -> ExecutionError:
    """OutOfMemoryError, or ExecutionError that says whether the process has lost the device."""
    if error.out_of_memory:
        return OutOfMemoryError(f"no memory is left on the device while {doing}: {error}")
    text = f"{doing} failed: {error}"
    if error.sticky:
        text += (
            "; CUDA does no more work in this process, so restart it, and find the kernel with "
            "`compute-sanitizer --tool memcheck`"
        )
    return ExecutionError(text)
