"""Types of the extension; csrc/module.cpp is the source."""

from typing import Any

def kernels() -> dict[str, Any]: ...
