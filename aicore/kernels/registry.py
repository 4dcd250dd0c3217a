"""Every kernel that is known, found by op and kind of device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from aicore.ir import Op
from aicore.kernels.kernel import REFERENCE, Kernel


class KernelTable:
    """Kernels in the order in which plugins registered them. Never changes, so threads share it.

    A kernel serves exactly the op class that it names: a subclass may mean something else.
    """

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        found: dict[tuple[type[Op], str], list[Kernel]] = defaultdict(list)
        for kernel in kernels:
            found[kernel.op, kernel.device].append(kernel)
        self._by_op = {key: tuple(items) for key, items in found.items()}

    @classmethod
    def of_precision(cls, kernels: Iterable[Kernel], precision: str) -> KernelTable:
        """Those that a program of this precision may use: kernels that lower it are there when they are asked for."""
        return cls(kernel for kernel in kernels if kernel.precision in (None, precision))

    def find(self, op: type[Op], device: str) -> tuple[Kernel, ...]:
        """Kernels of the op on this kind of device; empty when there is none."""
        return self._by_op.get((op, device), ())

    def serving(self, op: Op, device: str) -> tuple[Kernel, ...]:
        """Kernels for this very op: if it holds another one, only those that are for what it holds."""
        held = type(getattr(op, "inner", None))
        return tuple(k for k in self.find(type(op), device) if k.wraps is None or k.wraps is held)

    def reference(self, op: type[Op], device: str) -> Kernel | None:
        """The kernel that says what the op means, if the device has it."""
        return next((kernel for kernel in self.find(op, device) if kernel.variant == REFERENCE), None)

    def __iter__(self) -> Iterator[Kernel]:
        return (kernel for kernels in self._by_op.values() for kernel in kernels)

    def __len__(self) -> int:
        return sum(map(len, self._by_op.values()))
