"""A device together with everything that serves it."""

from __future__ import annotations

from collections.abc import Callable

from aicore.errors import UnsupportedError
from aicore.ir import Node
from aicore.kernels import Selection, Selector
from aicore.records import dataclass
from aicore.runtime.constants import Constants
from aicore.runtime.device import Device
from aicore.runtime.executable import Executable
from aicore.runtime.plan import Plan


@dataclass(frozen=True)
class Backend:
    """A device, the launch hook of the plugin that owns it, the choice among its kernels, and a program's constants.

    plugin: name of the plugin that owns the device, for summaries.
    """

    device: Device
    launch: Callable[[Plan], Executable]
    selector: Selector
    constants: Constants
    plugin: str = ""

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def pitched(self) -> bool:
        """Whether the launcher knows buffers with a pitch: a device says so, or says nothing."""
        return bool(getattr(self.device, "pitched", False))

    def select(self, node: Node) -> Selection:
        """The kernel for a node. Raises UnsupportedError with the reasons when there is none."""
        types = [None if value is None else value.type for value in node.inputs]
        if self.device.static_shapes_only:
            for value in (v for v in (*node.inputs, *node.outputs) if v is not None):
                if not value.type.is_static:
                    raise UnsupportedError(f"the size of %{value.name} depends on data")
                if value.dtype == "string":
                    raise UnsupportedError(f"%{value.name} holds strings")
        constant = [i for i, v in enumerate(node.inputs) if v is not None and v.constant is not None]
        return self.selector.select(node.op, *types, node=node.outputs[0].name, constant=constant)
