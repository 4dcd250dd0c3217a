"""Plugins that are broken on purpose: one template, filled in for each way, and what must be said of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

TEMPLATE = Template(Path(__file__).with_name("template.py.txt").read_text(encoding="utf-8"))
_EMPTY = {"at_import": "", "in_probe": "", "arguments": "", "in_register_kernels": "", "in_register_passes": "",
          "at_end": "", "device": "evil"}  # fmt: skip


@dataclass(frozen=True)
class Evil:
    """One broken plugin.

    parts: code for the places of the template.
    info: arguments of its PluginInfo. before_info: code at the beginning of its info module.
    requires: its Requires-Dist lines.
    entry: name of its entry point, when it is not `name`.
    state: how `aicore plugins list --load` must show it. finding, reason, fix: what `aicore plugins doctor` must show,
    the latter two as regular expressions; empty when the doctor cannot see it, as only conformance tests can.
    """

    name: str
    what: str
    parts: Mapping[str, str] = field(default_factory=dict)
    state: str = "failed"
    finding: str = ""
    reason: str = ""
    fix: str = "AICORE_DISABLE_PLUGINS={entry}"
    info: str = "kind='device', devices=('evil',), priority=-200"
    requires: tuple[str, ...] = ("aicore>=0.1", "aicore-cpu-numpy")
    entry: str = ""
    before_info: str = ""

    @property
    def entry_name(self) -> str:
        return self.entry or self.name

    @property
    def package(self) -> str:
        return f"{self.name}_package"

    @property
    def distribution(self) -> str:
        return self.name.replace("_", "-")

    @property
    def source(self) -> str:
        """The module with the hooks."""
        return TEMPLATE.substitute({**_EMPTY, "what": self.what, **self.parts})

    @property
    def info_source(self) -> str:
        """The module with INFO."""
        return f"from aicore.plugins.info import PluginInfo\n\n{self.before_info}\nINFO = PluginInfo({self.info})\n"


_UPGRADE = "pip install --upgrade {distribution};"
_REINSTALL = "pip install --force-reinstall {distribution}"
_TRANSFORM = "kind='transform'"

_WRONG = """
@kernel(ops.Neg, device="evil", variant="wrong")
def neg_wrong(op, x):
    return np.negative(x) + np.asarray(1, x.dtype)
"""
_MUTATING = """
@kernel(ops.Neg, device="evil", variant="mutating")
def neg_mutating(op, x):
    result = np.negative(x)
    x.flags.writeable = True
    x[...] = 0
    return result
"""
_TWIN = "kind='device', devices=('twin',), priority=-200"

BROKEN: tuple[Evil, ...] = (
    Evil(
        "evil_import_error", "it imports a module that does not exist", {"at_import": "import no_such_module"},
        finding="import error", reason="its import raised ModuleNotFoundError: No module named 'no_such_module'",
        fix=_REINSTALL,
    ),
    Evil(
        "evil_os_error", "a shared library is missing", {"at_import": 'ctypes.CDLL("libevil.so.3")'},
        finding="missing library", reason=r"its import raised OSError: libevil\.so\.3: cannot open shared object file",
        fix=r"apt-file search libevil\.so\.3",
    ),
    Evil(
        "evil_system_exit", "its import raises SystemExit", {"at_import": "raise SystemExit(3)"},
        finding="exit", reason="its import raised SystemExit: 3",
    ),
    Evil(
        "evil_os_exit", "its import ends the process, and says that all is well", {"at_import": "os._exit(0)"},
        finding="exit", reason="its import ended the process with status 0",
    ),
    Evil(
        "evil_hang", "its import never ends", {"at_import": "time.sleep(3600)"},
        finding="hang", reason=r"its import did not end within [\d.]+ s at .*evil_hang_package/plugin\.py, line \d+",
        fix="AICORE_PLUGIN_TIMEOUT=120",
    ),
    Evil(
        "evil_hang_with_child", "it waits for a process of its own, which keeps its output open",
        {"in_probe": 'subprocess.run(["sleep", "3600"])'},
        finding="hang", reason=r"probe did not end within [\d.]+ s", fix="AICORE_PLUGIN_TIMEOUT=120",
    ),
    Evil(
        "evil_segfault", "its import reads memory at address 0", {"at_import": "ctypes.string_at(0)"},
        finding="crash", reason=r"its import crashed with SIGSEGV at .*evil_segfault_package/plugin\.py, line \d+",
    ),
    Evil(
        "evil_abort", "a library that it calls gives up", {"in_probe": "os.abort()"},
        finding="crash", reason="probe crashed with SIGABRT",
    ),
    Evil(
        "evil_signature", "a hook has an argument that the hook does not have", {"arguments": "graph"},
        finding="broken hook", reason=r"'register_kernels'.*\{'graph'\}",
    ),
    Evil(
        "evil_hook", "a hook raises", {"in_register_kernels": 'raise RuntimeError("no kernels today")'},
        finding="broken hook", reason="register_kernels raised RuntimeError: no kernels today",
    ),
    Evil(
        "evil_half_registered", "its third hook raises after the others have returned",
        {"in_register_passes": 'raise KeyError("passes")'},
        finding="broken hook", reason="register_passes raised KeyError: 'passes'",
    ),
    Evil(
        "evil_api_version", "it was written for another version of the hooks", info=f"{_TRANSFORM}, api_version=99",
        state="incompatible", finding="API skew", reason="made for plugin API 99", fix=_UPGRADE,
    ),
    Evil(
        "evil_info_os_exit", "its info module ends the process, and says that all is well",
        before_info="import os\nos._exit(0)",
        finding="exit", reason="its info module evil_info_os_exit_package.info:INFO ended the process with status 0",
    ),
    Evil(
        "evil_info_segfault", "its info module reads memory at address 0",
        before_info="import ctypes\nctypes.string_at(0)",
        finding="crash", reason=r"its info module .* crashed with SIGSEGV at .*_segfault_package/info\.py, line 4",
    ),
    Evil(
        "evil_info_hang", "its info module never ends", before_info="while True: pass",
        finding="hang", reason=r"its info module .* did not end within [\d.]+ s at .*_package/info\.py, line 3",
        fix="AICORE_PLUGIN_TIMEOUT=120",
    ),
    Evil(
        "evil_info_system_exit", "its info module raises SystemExit", before_info="raise SystemExit('no INFO today')",
        finding="exit", reason="its info module .* raised SystemExit: no INFO today", fix=_REINSTALL,
    ),
    Evil(
        "evil_info_invalid", "its INFO contradicts itself", info="kind='device'",
        finding="import error", reason=r"its info module .* raised ValueError: a device plugin cannot have devices=",
        fix=_REINSTALL,
    ),
    Evil(
        "evil_info_type", "a field of its INFO has the wrong type", info="kind='device', devices='evil'",
        finding="import error", reason=r"its info module .* raised TypeError: devices is 'evil'; give a tuple of texts",
        fix=_REINSTALL,
    ),
    Evil(
        "evil_info_dict", "its INFO is no PluginInfo", info="kind='transform')\nINFO = dict(kind='transform'",
        finding="import error", reason="its info module .* raised PluginError: expected a PluginInfo, got dict",
        fix=_REINSTALL,
    ),
    Evil(
        "evil_info_field", "its INFO has a field of another aicore", info="kind='transform', colour='red'",
        finding="API skew", reason="its info module .* got an unexpected keyword argument 'colour'", fix=_UPGRADE,
    ),
    Evil(
        "evil_requirement", "it requires another aicore", requires=("aicore>=99",),
        state="incompatible", finding="API skew", reason="requires aicore>=99", fix=_UPGRADE,
    ),
    Evil(
        "evil_api_import", "it imports a name that aicore does not have",
        {"at_import": "from aicore.kernels import no_such_name"},
        finding="API skew", reason="its import raised ImportError: cannot import name 'no_such_name'",
        fix=_UPGRADE,
    ),
    Evil(
        "evil_twin_one", "another plugin has its name", entry="evil_twin", info=_TWIN,
        finding="conflict", reason="2 plugins have this name, of evil-twin-one 1.0 and evil-twin-two 1.0",
    ),
    Evil(
        "evil_twin_two", "another plugin has its name", entry="evil_twin", info=_TWIN,
        finding="conflict", reason="2 plugins have this name, of evil-twin-one 1.0 and evil-twin-two 1.0",
    ),
    Evil(
        "evil_duplicate_kernel", "it has a kernel that the CPU's own plugin has",
        {
            "at_end": "del probe, launch\n\n@hookimpl\ndef register_kernels():\n"
            '    return [k for k in all_kernels() if k.name == "relu_reference"]'
        },
        info=_TRANSFORM, finding="conflict",
        reason=r"kernel 'reference' of Relu on cpu is registered by .*cpu_numpy \(.*evil_duplicate_kernel \(|"
        r"kernel 'reference' of Relu on cpu is registered by .*evil_duplicate_kernel \(.*cpu_numpy \(",
    ),
)  # fmt: skip
"""Those that are noticed when they are loaded."""

ABSENT: tuple[Evil, ...] = (
    Evil(
        "evil_no_device", "its device is not here",
        {"in_probe": 'return Probe(reason="no evil card on the bus", fix="plug one in")'},
        state="unavailable", finding="no device", reason="no evil card on the bus", fix="plug one in",
    ),
    Evil(
        "evil_old_driver", "its driver is too old",
        {"in_probe": 'return Probe(reason="CUDA driver version is insufficient for CUDA runtime version")'},
        state="unavailable", finding="driver too old", reason="driver version is insufficient",
        fix="sudo ubuntu-drivers install",
    ),
    Evil(
        "evil_no_compiler", "it compiles at the first import, and cannot",
        {"at_import": 'subprocess.run(["/no/such/folder/nvcc", "--version"], check=True)'},
        finding="missing compiler", reason="its import raised FileNotFoundError.*nvcc",
        fix="install the CUDA toolkit, which has nvcc",
    ),
)  # fmt: skip
"""Those that are healthy, on a machine that is not."""

SUBTLE: tuple[Evil, ...] = (
    Evil(
        "evil_mutating", "a kernel writes into its input",
        {
            "at_end": _MUTATING
            + '\n@hookimpl\ndef register_kernels():\n    return [*kernels_of_the_cpu("Neg"), neg_mutating]'
        },
        state="active",
    ),
    Evil(
        "evil_wrong_numbers", "a kernel computes something else",
        {
            "at_end": _WRONG
            + '\n@hookimpl\ndef register_kernels():\n    return [*kernels_of_the_cpu("Neg"), neg_wrong]'
        },
        state="active",
    ),
    Evil(
        "evil_nothing", "it has a device and no kernel, so that all it is asked for falls back",
        {"in_register_kernels": "return []"},
        state="active",
    ),
)  # fmt: skip
"""Those that load and probe as they should; only a comparison of numbers finds them, or a proof of execution."""

ALL: tuple[Evil, ...] = (*BROKEN, *ABSENT, *SUBTLE)


def named(name: str) -> Evil:
    """The broken plugin of this name."""
    return next(evil for evil in ALL if evil.name == name)


def groups() -> Iterator[tuple[str, tuple[Evil, ...]]]:
    """What to install together, so that each fault shows on its own: one plugin, or those that share a name."""
    by_entry: dict[str, list[Evil]] = {}
    for evil in (*BROKEN, *ABSENT):
        by_entry.setdefault(evil.entry_name, []).append(evil)
    for entry, evils in by_entry.items():
        yield entry, tuple(evils)
