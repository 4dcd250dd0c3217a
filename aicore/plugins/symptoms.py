"""Texts of errors, what they mean, and the command that cures it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aicore.plugins.discovery import upgrade_advice
from aicore.plugins.endings import Ending
from aicore.plugins.loading import IMPORT
from aicore.plugins.states import Finding, PluginRecord


class Symptom(NamedTuple):
    """The class of a reason, and the fix that the reason itself shows, if it shows one."""

    finding: Finding
    fix: str = ""


_TOOL = r"(?P<name>nvcc|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cl\.exe|cl|ninja|cmake|hipcc)"
_PATTERNS: tuple[tuple[Finding, str], ...] = (
    ("API skew", r"cannot import name '\w+' from (?:partially initialized module )?'aicore[.']"),
    ("API skew", r"No module named 'aicore[.']|module 'aicore[\w.]*' has no attribute"),
    ("API skew", r"PluginInfo\.__init__\(\) got an unexpected keyword argument"),
    ("no driver", r"\b(?:no|without an?) (?:NVIDIA |AMD |Intel |GPU )?driver\b"),
    ("driver too old", r"driver version is insufficient|InsufficientDriver|SYSTEM_DRIVER_MISMATCH"),
    ("driver too old", r"driver\b.*\btoo old|requires (?:an? )?(?:NVIDIA |CUDA )?driver\b.*\d"),
    ("driver too old", r"unsupported toolchain|UNSUPPORTED_PTX_VERSION|InvalidPtxVersion"),
    ("missing compiler", rf"No such file or directory: '(?:[^']*/)?{_TOOL}'"),
    ("missing compiler", rf"\b{_TOOL}:? (?:command )?not found|\bno (?P<kind>C|C\+\+|CUDA) compiler"),
    ("missing compiler", r"Microsoft Visual C\+\+ [\d.]+ or greater is required|Unable to find a .*compiler"),
    ("missing library", r"(?P<name>[\w.+-]+\.(?:so|dylib|dll)[\w.]*): cannot open shared object file"),
    ("missing library", r"Library not loaded: (?P<name>\S+)"),
    ("missing library", r"Could not (?:find|load) (?:module|library|dynamic library) '(?P<name>[^']+)'"),
    ("missing library", r"version `(?P<name>GLIBCXX_[\w.]+|CXXABI_[\w.]+|GLIBC_[\w.]+)' not found"),
    ("missing library", r"DLL load failed while importing (?P<name>\w+)"),
    ("no device", r"no CUDA-capable device|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE"),
)
_DRIVER_FIX = (
    "install the newest NVIDIA driver (Ubuntu: `sudo ubuntu-drivers install`); `nvidia-smi` shows which one runs"
)
_CUDA_WHEELS = {
    "cudart": "nvidia-cuda-runtime",
    "nvrtc": "nvidia-cuda-nvrtc",
    "cublas": "nvidia-cublas",
    "cudnn": "nvidia-cudnn",
    "curand": "nvidia-curand",
    "cufft": "nvidia-cufft",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
}


def symptom_of(reason: str, available: bool = True) -> Symptom:
    """What the reason of a failure shows; of an absent device, when not `available`."""
    for finding, pattern in _PATTERNS:
        found = re.search(pattern, reason, re.IGNORECASE)
        if found is not None:
            name = found.groupdict().get("name") or ""
            return Symptom(finding, _FIXES[finding](name) if finding in _FIXES else "")
    if not available:
        return Symptom("no device")
    return Symptom("import error" if reason.startswith(IMPORT) else "broken hook")


def symptom_of_ending(ending: Ending) -> Symptom:
    """What it means that a child process did not come to its end. Raises KeyError when it did."""
    return Symptom(_ENDINGS[ending])


def symptom_of_info(ending: Ending, reason: str) -> Symptom:
    """What it means that a plugin's info module gave no INFO."""
    if ending is not Ending.RETURNED:
        return symptom_of_ending(ending)
    symptom = symptom_of(reason)
    return Symptom("import error") if symptom.finding == "broken hook" else symptom


def advice(symptom: Symptom, record: PluginRecord) -> str:
    """What to do about a plugin that failed, where its own hints do not say it."""
    return (
        f"{symptom.fix or _default(symptom.finding, record)}; AICORE_DISABLE_PLUGINS={record.name} goes on without it"
    )


def _default(finding: Finding, record: PluginRecord) -> str:
    again = f"then `aicore plugins doctor {record.name}`, which tries it again"
    match finding:
        case "API skew":
            return upgrade_advice(record.distribution)
        case "conflict":
            return "uninstall one of them, or tell their authors"
        case "hang":
            return f"if it is only slow, AICORE_PLUGIN_TIMEOUT=120; else repair it, {again}"
        case "not tried":
            return "repair what keeps this Python from starting a child process"
        case "side effects":
            return (
                f"pip install --upgrade {record.distribution}, or tell its authors: its import must only define things"
            )
        case "crash" | "exit":
            return f"pip install --force-reinstall {record.distribution}, {again}"
    return f"pip install --force-reinstall {record.distribution}, which installs what it requires, or tell its authors"


def _library_fix(name: str) -> str:
    stem = re.sub(r"^lib|[.\d]*\.(?:so|dylib|dll).*$|64_\d+$", "", name.rpartition("/")[2]).lower()
    if stem in {"cuda", "nvidia-ml", "nvcuda"}:
        return f"{name} is part of the NVIDIA driver: {_DRIVER_FIX}"
    if stem in _CUDA_WHEELS:
        major = re.search(r"\.so\.(1[0-9])", name)
        return f"pip install {_CUDA_WHEELS[stem]}-cu{major[1] if major else '12'}"
    if name.startswith(("GLIBC", "CXXABI")):
        package = "libc6" if name.startswith("GLIBC_") else "libstdc++6"
        return f"sudo apt install --only-upgrade {package}, or the plugin's build for an older system"
    return f"install {name}; on Debian and Ubuntu `apt-file search {name}` names its package"


def _compiler_fix(name: str) -> str:
    if name in {"nvcc", "hipcc"}:
        toolkit = {"nvcc": "CUDA", "hipcc": "ROCm"}[name]
        return f"install the {toolkit} toolkit, which has {name}, and put it on PATH"
    if name in {"ninja", "cmake"}:
        return f"pip install {name}"
    return "sudo apt install build-essential (macOS: `xcode-select --install`; Windows: the Visual C++ build tools)"


_ENDINGS: Mapping[Ending, Finding] = {
    Ending.CRASHED: "crash",
    Ending.HUNG: "hang",
    Ending.EXITED: "exit",
    Ending.REFUSED: "side effects",
    Ending.NOT_STARTED: "not tried",
}
_FIXES: Mapping[Finding, Callable[[str], str]] = {
    "no driver": lambda name: _DRIVER_FIX,
    "driver too old": lambda name: _DRIVER_FIX,
    "missing library": _library_fix,
    "missing compiler": _compiler_fix,
}
