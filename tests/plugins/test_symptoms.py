"""Texts that users meet, what they mean, and what cures them."""

from __future__ import annotations

import pytest

from aicore.plugins.endings import Ending
from aicore.plugins.states import PluginRecord
from aicore.plugins.symptoms import Symptom, advice, symptom_of, symptom_of_ending

TEXTS = {
    "libcudart.so.12: cannot open shared object file: No such file or directory": (
        "missing library",
        "pip install nvidia-cuda-runtime-cu12",
    ),
    "libcublas.so.13: cannot open shared object file": ("missing library", "pip install nvidia-cublas-cu13"),
    "libcudnn.so.9: cannot open shared object file": ("missing library", "pip install nvidia-cudnn-cu12"),
    "libcuda.so.1: cannot open shared object file": ("missing library", "libcuda.so.1 is part of the NVIDIA driver"),
    "libnpu.so: cannot open shared object file": ("missing library", "`apt-file search libnpu.so`"),
    "/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)": ("missing library", "libstdc++6"),
    "/lib/libc.so.6: version `GLIBC_2.38' not found (required by x.so)": ("missing library", "libc6"),
    "dlopen(x.so): Library not loaded: @rpath/libnpu.dylib": ("missing library", "install @rpath/libnpu.dylib"),
    "Could not find module 'npu.dll' (or one of its dependencies)": ("missing library", "install npu.dll"),
    "DLL load failed while importing engine: The specified module could not be found.": ("missing library", "engine"),
    "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version": (
        "driver too old",
        "sudo ubuntu-drivers install",
    ),
    "no NVIDIA driver: libcuda.so.1 is not found": ("no driver", "nvidia-smi"),
    "Found no NVIDIA driver on your system": ("no driver", "nvidia-smi"),
    "the NVIDIA driver 470.82 is too old: CUDA 12 needs 525": ("driver too old", "nvidia-smi"),
    "CUDA 12 requires driver 525.60": ("driver too old", "nvidia-smi"),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported toolchain": (
        "driver too old",
        "nvidia-smi",
    ),
    "[Errno 2] No such file or directory: 'nvcc'": ("missing compiler", "install the CUDA toolkit, which has nvcc"),
    "[Errno 2] No such file or directory: '/usr/bin/g++'": ("missing compiler", "sudo apt install build-essential"),
    "/bin/sh: 1: gcc: not found": ("missing compiler", "sudo apt install build-essential"),
    "ninja: command not found": ("missing compiler", "pip install ninja"),
    "no CUDA compiler": ("missing compiler", "build-essential"),
    "error: Microsoft Visual C++ 14.0 or greater is required": ("missing compiler", "Visual C++ build tools"),
    "cannot import name 'Kernel2' from 'aicore.kernels' (/x/aicore/kernels/__init__.py)": ("API skew", ""),
    "No module named 'aicore.autograd'": ("API skew", ""),
    "module 'aicore' has no attribute 'no_such'": ("API skew", ""),
    "cudaErrorNoDevice: no CUDA-capable device is detected": ("no device", ""),
    "its import raised ModuleNotFoundError: No module named 'torch'": ("import error", ""),
    "its import raised ModuleNotFoundError: No module named 'aicore_gpu'": ("import error", ""),
    "register_kernels raised ValueError: two": ("broken hook", ""),
    "[Errno 2] No such file or directory: 'gcc_options.json'": ("broken hook", ""),
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_text_means(text: str) -> None:
    finding, fix = TEXTS[text]
    symptom = symptom_of(text)
    assert symptom.finding == finding
    assert fix in symptom.fix
    assert bool(fix) == bool(symptom.fix)


def test_an_absent_device_may_have_a_known_reason() -> None:
    assert symptom_of("there is no NPU", available=False) == Symptom("no device")
    assert symptom_of("libnpu.so: cannot open shared object file", available=False).finding == "missing library"


RECORD = PluginRecord("npu", "dist-npu", "1.0")


@pytest.mark.parametrize(
    ("symptom", "start"),
    [
        (symptom_of_ending(Ending.CRASHED), "pip install --force-reinstall dist-npu, then `aicore plugins doctor npu`"),
        (symptom_of_ending(Ending.EXITED), "pip install --force-reinstall dist-npu, then `aicore plugins doctor npu`"),
        (symptom_of_ending(Ending.HUNG), "if it is only slow, AICORE_PLUGIN_TIMEOUT=120; else repair it"),
        (symptom_of_ending(Ending.NOT_STARTED), "repair what keeps this Python from starting a child process"),
        (Symptom("API skew"), "pip install --upgrade dist-npu; or for aicore itself"),
        (Symptom("conflict"), "uninstall one of them"),
        (Symptom("import error"), "pip install --force-reinstall dist-npu, which installs what it requires"),
        (Symptom("broken hook"), "pip install --force-reinstall dist-npu"),
        (Symptom("missing library", "apt install libnpu"), "apt install libnpu"),
    ],
)
def test_each_failure_has_a_fix_and_a_way_round(symptom: Symptom, start: str) -> None:
    text = advice(symptom, RECORD)
    assert text.startswith(start)
    assert text.endswith("; AICORE_DISABLE_PLUGINS=npu goes on without it")


def test_a_return_is_no_symptom() -> None:
    with pytest.raises(KeyError):
        symptom_of_ending(Ending.RETURNED)
