"""Whether what a plugin's hooks return can be used: each check raises PluginError with the hook and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aicore.errors import AicoreError, PluginError
from aicore.plugins.device_names import parse_device

if TYPE_CHECKING:
    from aicore.passes import Pass
    from aicore.plugins.info import PluginInfo


def check_devices(devices: Iterable[Any], info: PluginInfo | None) -> None:
    """Devices have all of their parts, kinds that fit their names and INFO, and names of their own."""
    from aicore.runtime.device import Device  # needs NumPy, which listing plugins does not

    positions = set()
    for device in devices:
        if not isinstance(device, Device):
            raise PluginError(f"probe returned {device!r}, which lacks a part of aicore.runtime.Device")
        name = parse_device(device.name)
        if device.kind != name.kind:
            raise PluginError(f"probe returned device {device.name!r}, whose kind {device.kind!r} is another")
        if info is not None and name.kind not in info.devices:
            raise PluginError(f"probe returned device {device.name!r}, but INFO.devices is {info.devices!r}")
        if name.position in positions:
            raise PluginError(f"probe returned device {device.name!r} twice")
        positions.add(name.position)


def check_op(item: object) -> None:
    """It is a class of ops."""
    from aicore.ir import Op  # see check_devices

    if not (isinstance(item, type) and issubclass(item, Op)):
        raise PluginError(f"register_ops returned {item!r}, which is no subclass of Op")


def check_kernel(item: object) -> None:
    """It is a Kernel whose fields are what they should be: selection and conflicts rely on it."""
    from aicore.kernels import Kernel  # see check_devices

    if not isinstance(item, Kernel):
        raise PluginError(f"register_kernels returned {item!r}, which is no Kernel; make one with @kernel")
    for name, (fits, wanted) in _KERNEL_FIELDS.items():
        value = getattr(item, name)
        if not fits(value):
            raise PluginError(f"register_kernels returned a kernel whose {name} is {value!r}; it must be {wanted}")


def check_kernel_item(item: object) -> None:
    """It is a Kernel, or a family of them, whose fields are what they should be."""
    from aicore.kernels import KernelFamily  # see check_devices

    if not isinstance(item, KernelFamily):
        check_kernel(item)
        return
    for name, (fits, wanted) in _FAMILY_FIELDS.items():
        value = getattr(item, name)
        if not fits(value):
            raise PluginError(f"register_kernels returned a family whose {name} is {value!r}; it must be {wanted}")


def check_pass(item: object) -> None:
    """It has all that ordering and running passes reads."""
    from aicore.passes import PHASES  # see check_devices

    if isinstance(item, type) or not _is_name(getattr(item, "name", None)):
        raise PluginError(f"register_passes returned {item!r}, which is no instance of a Pass")
    what = f"register_passes returned pass {getattr(item, 'name', '')!r}"
    if not callable(getattr(item, "apply", None)):
        raise PluginError(f"{what}, which has no method apply")
    if (phase := getattr(item, "phase", None)) not in PHASES:
        raise PluginError(f"{what} with phase {phase!r}; choose from {', '.join(PHASES)}")
    for name in ("before", "after"):
        value = getattr(item, name, None)
        if not isinstance(value, (tuple, list)) or not all(isinstance(other, str) for other in value):
            raise PluginError(f"{what} whose {name} is {value!r}; it must be a tuple of names of passes")


def check_order(passes: Iterable[Pass]) -> None:
    """They find their place among those of aicore, and have names of their own."""
    from aicore.passes import default_passes  # see check_devices

    passes = tuple(passes)
    core = {one.name for one in default_passes()}
    if taken := next((one.name for one in passes if one.name in core), ""):
        raise PluginError(f"register_passes returned pass {taken!r}, which is a pass of aicore itself")
    try:
        default_passes(passes)
    except AicoreError as error:
        raise PluginError(f"what register_passes returned has no order: {error}") from error


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and parse_device(value).index is None


def _is_op(value: object) -> bool:
    from aicore.ir import Op  # see check_devices

    return isinstance(value, type) and issubclass(value, Op)


def _are_names(value: object) -> bool:
    return isinstance(value, frozenset) and all(isinstance(item, str) for item in value)


def _are_dtypes(value: object) -> bool:
    return value is None or _are_names(value)


def _is_optional_call(value: object) -> bool:
    return value is None or callable(value)


def _are_settings(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(choices, tuple) and choices for name, choices in value.items()
    )


_FAMILY_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "module": (_is_name, "the full name of a module"),
    "device": (_is_kind, "a kind of device, such as 'cpu'"),
    "ops": (lambda value: bool(value) and _are_names(value), "a frozenset of names of ops"),
}
_CALL = (_is_optional_call, "a function, or None")
_KERNEL_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "op": (_is_op, "a subclass of Op"),
    "device": (_is_kind, "a kind of device, such as 'cpu'"),
    "variant": (_is_name, "a name"),
    "function": (callable, "a function"),
    "dtypes": (_are_dtypes, "a frozenset of names of element types, or None"),
    **dict.fromkeys(("supports", "workspace", "bind", "estimate"), _CALL),
    "tune": (_are_settings, "a dict from names to tuples of choices"),
    "wraps": (lambda value: value is None or _is_op(value), "a subclass of Op, or None"),
}
