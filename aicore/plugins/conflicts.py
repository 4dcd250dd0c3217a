"""Claims that several plugins make on one name, kernel or device. What conflicts is named; order never decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aicore.errors import AicoreError, PluginError
from aicore.plugins.device_names import parse_device
from aicore.plugins.loading import Contribution
from aicore.plugins.states import PluginRecord

if TYPE_CHECKING:
    from aicore.kernels import Kernel
    from aicore.passes import Pass

Loaded: TypeAlias = Mapping[str, tuple[PluginRecord, Contribution]]
"""What was loaded, by the plugin's name."""
Claim: TypeAlias = tuple[str, ...]
"""What is claimed: its sort, then what makes it unique."""


class Contest(NamedTuple):
    """Several plugins claim one device with this same priority, and none has a higher one."""

    priority: int
    reason: str


def import_shared(loaded: Loaded) -> dict[str, PluginError]:
    """Import the families of kernels that are to be compared, and why those of a plugin cannot be, by its name."""
    shared = _shared_ops(loaded)
    broken: dict[str, PluginError] = {}
    for name, (_, contribution) in loaded.items():
        try:
            _compared(contribution, shared)
        except PluginError as error:
            broken[name] = error
    return broken


def find_duplicates(loaded: Loaded, core_ops: Collection[str]) -> dict[str, str]:
    """Plugins that must fail, with the reason.

    A kernel that two plugins have stays with the one that drives its device, if exactly one of them does. In all other
    cases every claimant fails, so that neither the alphabet nor the order of installation chooses what runs.
    """
    claims: dict[Claim, list[str]] = defaultdict(list)
    reasons: dict[str, str] = {}
    shared = _shared_ops(loaded)
    for name, (record, contribution) in loaded.items():
        for claim in _claims(contribution, shared):
            if claim[0] == "op" and claim[1] in core_ops:
                reasons[name] = f"op {claim[1]!r} is an op of aicore itself; {record.label} needs another name"
            claims[claim].append(name)
    for claim, names in claims.items():
        for name in _losers(claim, names, loaded):
            reasons.setdefault(name, f"{_describe(claim)} is registered by {_labels(names, loaded)}")
    return reasons


def find_tangles(loaded: Loaded) -> dict[str, str]:
    """Plugins whose passes have no order together, though those of each one alone have, with the reason.

    They are those without any one of which there is an order; all that have passes, where there is no such plugin.
    """
    having = {name: contribution.passes for name, (_, contribution) in loaded.items() if contribution.passes}
    problem = _tangle(having)
    if len(having) < 2 or not problem:
        return {}
    guilty = [name for name in having if not _tangle({k: v for k, v in having.items() if k != name})] or list(having)
    reason = f"the passes of {_labels(guilty, loaded)} have no order together: {problem}"
    return dict.fromkeys(guilty, reason)


def _tangle(passes: Mapping[str, Iterable[Pass]]) -> str:
    """Why the passes have no order; two of one name are another conflict, and one of them will do here."""
    if not passes:
        return ""
    from aicore.passes import default_passes  # a listing of plugins needs none of it

    unique = {one.name: one for several in passes.values() for one in several}
    try:
        default_passes(unique.values())
    except AicoreError as error:
        return str(error)
    return ""


def find_owners(loaded: Loaded) -> tuple[dict[str, str], dict[str, Contest]]:
    """The plugin that launches each device, and each device without a clear owner.

    The highest priority owns a device. Keys are the devices' names as their owners write them.
    """
    claimants: dict[tuple[str, int], list[tuple[int, str, str]]] = defaultdict(list)
    for name, (record, contribution) in loaded.items():
        for device in contribution.devices:
            claimants[parse_device(device.name).position].append((record.priority, name, device.name))
    owners: dict[str, str] = {}
    contested: dict[str, Contest] = {}
    for claims in claimants.values():
        top = max(priority for priority, _, _ in claims)
        best = [(name, device) for priority, name, device in claims if priority == top]
        name, device_name = best[0]
        if len(best) == 1:
            owners[device_name] = name
            continue
        rivals = _labels([rival for rival, _ in best], loaded)
        reason = f"device {device_name!r} is claimed with equal priority {top} by {rivals}"
        fix = f"set AICORE_DISABLE_PLUGINS to one of {', '.join(sorted(rival for rival, _ in best))}"
        contested[device_name] = Contest(top, f"{reason}; fix: {fix}")
    return owners, contested


def _shared_ops(loaded: Loaded) -> set[tuple[str, str]]:
    """Kind of device and name of each op for which several plugins have kernels."""
    from aicore.kernels.family import op_names  # needs NumPy, which listing plugins does not

    plugins: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, (_, contribution) in loaded.items():
        for item in contribution.kernels:
            for op in op_names(item):
                plugins[item.device, op].add(name)
    return {key for key, names in plugins.items() if len(names) > 1}


def _claims(contribution: Contribution, shared: Collection[tuple[str, str]]) -> Iterator[Claim]:
    for op in contribution.ops:
        yield "op", op.__name__
    for kernel in _compared(contribution, shared):
        held = () if kernel.wraps is None else (kernel.wraps.__module__, kernel.wraps.__qualname__)
        yield "kernel", kernel.device, kernel.variant, kernel.op.__module__, kernel.op.__qualname__, *held
    for a_pass in contribution.passes:
        yield "pass", a_pass.name


def _compared(contribution: Contribution, shared: Collection[tuple[str, str]]) -> tuple[Kernel, ...]:
    """Its kernels without families for nothing that is shared, which are not imported only to be compared."""
    from aicore.kernels.family import KernelFamily, load_kernels, op_names  # see _shared_ops

    return load_kernels(
        item
        for item in contribution.kernels
        if not isinstance(item, KernelFamily) or any((item.device, op) in shared for op in op_names(item))
    )


def _losers(claim: Claim, names: list[str], loaded: Loaded) -> list[str]:
    if len(names) == 1:
        return []
    if claim[0] == "kernel":
        drivers = [name for name in names if loaded[name][1].drives(claim[1])]
        if len(drivers) == 1:
            return [name for name in names if name not in drivers]
    return names


def _describe(claim: Claim) -> str:
    if claim[0] == "kernel":
        _, device, variant, _, op, *held = claim
        return f"kernel {variant!r} of {op}{f'({held[-1]})' if held else ''} on {device}"
    return f"{claim[0]} {claim[1]!r}"


def _labels(names: list[str], loaded: Loaded) -> str:
    """`a (dist-a 1.0) and b (dist-b 1.0)`; one plugin that claims a thing twice is named once."""
    unique = dict.fromkeys(names)
    twice = " twice" if len(unique) == 1 else ""
    return " and ".join(loaded[name][0].label for name in unique) + twice
