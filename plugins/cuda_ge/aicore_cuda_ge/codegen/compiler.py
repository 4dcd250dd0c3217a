"""Source to a function on the current device: compiled by NVRTC, kept on disk and in memory.

CuPy's own way from source to kernel adds -ftz=true, which turns subnormal numbers into zeros, so that 1e-40 == 0. So
CuPy lends its binding of NVRTC and its loader here, and the cache between them is ours.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicore.config import from_environment
from aicore.errors import ExecutionError

OPTIONS = (
    "--std=c++17",
    "--fmad=false",  # NumPy rounds products before it adds, and so a chain agrees with its parts bit by bit
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
)
"""Arithmetic as IEEE 754 has it: these kernels wait for memory, so there is nothing to gain by less."""
_SMALL_PROGRAMS = ("--minimal",)
"""Spares NVRTC of CUDA 13 a third of its time: it leaves out textures and other things that no kernel here uses."""
_KNOWS_SMALL_PROGRAMS = (13, 0)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel that is loaded on a device. address: a CUfunction. module: what keeps it loaded.

    waits: every thread waits for the kernels before it first of all, so that it may be launched early.
    """

    address: int
    module: Any
    waits: bool = False


_Key = tuple[int, str, str]
_loaded: dict[_Key, Function] = {}
_busy: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)
_lock = threading.Lock()


def load(text: str, name: str) -> Function:
    """The kernel `name` of the source, on the current device.

    Raises ExecutionError, with the compiler's log, for a source that does not compile.
    """
    import cupy

    device = cupy.cuda.runtime.getDevice()
    key = (device, name, text)
    with _lock:
        busy = _busy[key]
    with busy:  # threads that bind the same kernel wait for one of them; others compile beside it
        if key not in _loaded:
            module = cupy.cuda.function.Module()
            capability = cupy.cuda.Device(device).compute_capability
            module.load(binary_of(text, capability))
            waits = waits_first(text, name) and compiled_for(capability) >= _FIRST_THAT_WAITS
            _loaded[key] = Function(int(module.get_function(name).ptr), module, waits)
        return _loaded[key]


_FIRST_THAT_WAITS = 90
"""Compute capability from which `begin()` of prelude.cuh waits; before, it does nothing."""


def waits_first(text: str, name: str) -> bool:
    """Whether the kernel `name` of the source is nothing but `begin();` up to its first statement."""
    found = re.search(rf"\b{re.escape(name)}\s*\([^{{;]*\)\s*\{{\s*begin\(\);", text)
    return found is not None and "__global__" in text[: found.start()].rpartition("}")[2]


def compiled_for(capability: str) -> int:
    """The compute capability that `binary_of` gives NVRTC for a device."""
    from cupy_backends.cuda.libs import nvrtc

    return int(architecture_option(capability, nvrtc.getSupportedArchs()).rpartition("_")[2])


def binary_of(text: str, capability: str, folder: Path | None = None) -> bytes:
    """Machine code (PTX for a device that is newer than the compiler) for the source, from the disk if it is there.

    capability: of the device, such as `90`. folder: of the cache; None means AICORE's.
    """
    from cupy_backends.cuda.libs import nvrtc

    version = nvrtc.getVersion()
    small = _SMALL_PROGRAMS if version >= _KNOWS_SMALL_PROGRAMS else ()
    options = (*OPTIONS, *small, architecture_option(capability, nvrtc.getSupportedArchs()))
    key = repr((version, options, text)).encode()
    path = (folder or cache_folder()) / f"{hashlib.blake2b(key, digest_size=16).hexdigest()}.bin"
    kept = _read(path)
    if kept is not None:
        return kept
    binary = _compile(text, options)
    _write(path, binary)
    return binary


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    config = from_environment()
    if config.cache_dir is not None:
        return config.cache_dir / "cuda"
    from platformdirs import user_cache_path

    return user_cache_path("aicore", appauthor=False) / "cuda"


def architecture_option(capability: str, known: Sequence[int]) -> str:
    """Machine code for the device itself; PTX of the newest architecture before it if the compiler is older."""
    wanted = int(capability)
    if wanted in known:
        return f"--gpu-architecture=sm_{wanted}"
    older = [architecture for architecture in known if architecture < wanted]
    if not older:
        raise ExecutionError(f"NVRTC compiles for compute capability {min(known)} and newer, the device has {wanted}")
    return f"--gpu-architecture=compute_{max(older)}"


def _compile(text: str, options: tuple[str, ...]) -> bytes:
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(text, "pointwise.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError as error:
        raise ExecutionError(f"NVRTC refuses generated source: {nvrtc.getProgramLog(program)}") from error
    else:
        is_ptx = any("=compute_" in option for option in options)
        found = nvrtc.getPTX(program) if is_ptx else nvrtc.getCUBIN(program)
        return found.encode() if isinstance(found, str) else bytes(found)
    finally:
        nvrtc.destroyProgram(program)


_DIGEST = 16
"""Bytes of a checksum in front of each binary: a driver may crash on half a file."""


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None  # not there, or not for us: it is compiled instead
    digest, binary = content[:_DIGEST], content[_DIGEST:]
    return binary if hashlib.blake2b(binary, digest_size=_DIGEST).digest() == digest else None


def _write(path: Path, binary: bytes) -> None:
    """Whole or not at all, whoever else writes; a folder that cannot be written costs only time at the next start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.blake2b(binary, digest_size=_DIGEST).digest() + binary)
        Path(temporary).replace(path)
    except OSError:
        return
