"""Every kernel that is known, found by op and kind of device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from aicore.ir import Op
from aicore.kernels.family import KernelFamily, kernels_of, op_names
from aicore.kernels.kernel import REFERENCE, Kernel


class KernelTable:
    """Kernels in the order in which plugins registered them. Its answers never change, so threads share it.

    A kernel serves exactly the op class that it names: a subclass may mean something else. Families are imported when
    one of their ops is asked for, and all of them when kernels are counted or listed.
    """

    def __init__(self, kernels: Iterable[Kernel | KernelFamily], precision: str | None = None) -> None:
        """precision: leave out kernels that lower it to another one; None leaves out nothing."""
        self._items = tuple(kernels)
        self._precision = precision
        self._named: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, item in enumerate(self._items):
            for name in op_names(item):
                self._named[name, item.device].append(number)
        self._found: dict[tuple[type[Op], type[Op] | None, str], tuple[Kernel, ...]] = {}

    @classmethod
    def of_precision(cls, kernels: Iterable[Kernel | KernelFamily], precision: str) -> KernelTable:
        """Those that a program of this precision may use: kernels that lower it are there when they are asked for."""
        return cls(kernels, precision)

    def find(self, op: type[Op], device: str) -> tuple[Kernel, ...]:
        """Kernels of the op on this kind of device, whatever it holds; empty when there is none."""
        return self._of(op, None, device)

    def serving(self, op: Op, device: str) -> tuple[Kernel, ...]:
        """Kernels for this very op: if it holds another one, those that are for what it holds, too."""
        inner = getattr(op, "inner", None)
        return self._of(type(op), None if inner is None else type(inner), device)

    def reference(self, op: type[Op], device: str) -> Kernel | None:
        """The kernel that says what the op means, if the device has it."""
        return next((kernel for kernel in self.find(op, device) if kernel.variant == REFERENCE), None)

    def has(self, device: str) -> bool:
        """Whether there are kernels for this kind of device."""
        return any(item.device == device for item in self._items)

    def packages(self, device: str) -> set[str]:
        """Names of the top-level packages that the kernels of this kind of device are from."""
        modules = (i.module if isinstance(i, KernelFamily) else i.function.__module__ for i in self._items_on(device))
        return {module.partition(".")[0] for module in modules}

    def _of(self, op: type[Op], held: type[Op] | None, device: str) -> tuple[Kernel, ...]:
        found = self._found.get((op, held, device))
        if found is None:
            names = [op.__name__] if held is None else [op.__name__, held.__name__]
            numbers = sorted({number for name in names for number in self._named.get((name, device), ())})
            kernels = (kernel for number in numbers for kernel in kernels_of(self._items[number]))
            found = tuple(k for k in kernels if k.op is op and k.wraps in (None, held) and self._fits(k))
            self._found[op, held, device] = found
        return found

    def _items_on(self, device: str) -> Iterator[Kernel | KernelFamily]:
        return (item for item in self._items if item.device == device)

    def _fits(self, kernel: Kernel) -> bool:
        return self._precision is None or kernel.precision in (None, self._precision)

    def __iter__(self) -> Iterator[Kernel]:
        return (kernel for item in self._items for kernel in kernels_of(item) if self._fits(kernel))

    def __len__(self) -> int:
        return sum(1 for _ in self)
