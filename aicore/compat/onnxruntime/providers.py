"""Execution providers are onnxruntime's word for devices: `CPUExecutionProvider` is aicore's `cpu`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from aicore.compat.onnxruntime.errors import EPFail, translated
from aicore.config import from_environment
from aicore.plugins import plugin_registry

Provider: TypeAlias = "str | tuple[str, Mapping[str, Any]]"
_SUFFIX = "ExecutionProvider"
_UPPER_CASE = frozenset({"cpu", "cuda"})


class Choice(NamedTuple):
    """A device, and the options by provider of a session that runs on it."""

    device: str
    options: dict[str, dict[str, str]]


def provider_name(device: str) -> str:
    """The provider that stands for a device: `cuda:1` -> `CUDAExecutionProvider`."""
    kind = device.split(":")[0]
    return (kind.upper() if kind in _UPPER_CASE else kind.capitalize()) + _SUFFIX


def available_providers() -> list[str]:
    """Providers of the usable devices, best first, each once."""
    devices = plugin_registry().devices()
    ranked = sorted(devices, key=lambda name: (-devices[name][0].priority, name))
    return list(dict.fromkeys(map(provider_name, ranked)))


def choose_device(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None = None
) -> Choice:
    """The device of the first provider that can be used; when none is named, AICORE_TARGET or else the CPU.

    As in onnxruntime, a provider that cannot be used is a UserWarning, and the CPU comes last without being named; but
    with AICORE_FALLBACK=error such a provider is an EPFail.
    Raises ValueError when the arguments are no providers, EPFail when no device can be used.
    """
    wanted = _normalised(providers, provider_options)
    available = available_providers()
    if not wanted:
        return _default(available)
    policy = from_environment().fallback
    for name, options in (*wanted.items(), (provider_name("cpu"), {})):
        if name in available:
            return Choice(_device(name, options), {name: options, provider_name("cpu"): {}})
        message = f"provider {name!r} is not available; available: {', '.join(available) or 'none'}"
        if policy == "error":
            raise EPFail(f"{message} (AICORE_FALLBACK=error)")
        if policy == "warn":
            warnings.warn(message, stacklevel=4)
    with translated():  # raises, saying what to install
        return _default(available)


def _default(available: Sequence[str]) -> Choice:
    target = from_environment().target
    if target is None and provider_name("cpu") in available:
        return Choice("cpu", {provider_name("cpu"): {}})
    with translated():
        device = plugin_registry().default_target().device
    return Choice(device, {provider_name(device): {}, provider_name("cpu"): {}})


def _device(provider: str, options: Mapping[str, str]) -> str:
    kind = provider.removesuffix(_SUFFIX).lower()
    return f"{kind}:{options['device_id']}" if "device_id" in options and kind != "cpu" else kind


def _normalised(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> dict[str, dict[str, str]]:
    """Options, as texts, by provider, each once."""
    if isinstance(providers, str) or not isinstance(providers, Sequence | None):
        raise ValueError(f"'providers' should be a sequence of names, not {providers!r}")
    pairs = [_pair(provider) for provider in providers or ()]
    if provider_options is not None:
        if any(not isinstance(provider, str) for provider in providers or ()):
            raise ValueError("'provider_options' is given, so 'providers' must be names alone")
        if len(provider_options) != len(pairs):
            raise ValueError("'providers' and 'provider_options' differ in length")
        pairs = [(name, options) for (name, _), options in zip(pairs, provider_options, strict=True)]
    return _texts(pairs)


def _pair(provider: Any) -> tuple[str, Mapping[str, Any]]:
    match provider:
        case str():
            return provider, {}
        case (str(name), Mapping() as options):
            return name, options
    raise ValueError(f"a provider is a name or a pair of name and options, not {provider!r}")


def _texts(pairs: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, options in pairs:
        found.setdefault(name, {str(key): str(value) for key, value in options.items()})
    return found
