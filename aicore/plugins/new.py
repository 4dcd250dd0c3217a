"""A new plugin: names that collide with nothing, and a complete package made from the files of `template/`."""

from __future__ import annotations

import json
import keyword
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aicore.errors import ConfigError, PluginError
from aicore.plugins.device_names import parse_device
from aicore.plugins.states import PluginRecord
from aicore.records import dataclass

LICENCES = ("Apache-2.0", "MIT", "BSD-3-Clause")
"""Licences whose text the template has, by their SPDX identifiers."""

_TEMPLATE = Path(__file__).with_name("template")
_SUFFIX = ".jinja"
_RESERVED = ("host", "core")
"""Words of the runtime for places that are no device."""


@dataclass(frozen=True)
class NewPlugin:
    """What the template fills in; `plan_plugin` makes one.

    distribution: what pip calls it: `my-npu`. package: what Python and aicore call it: `my_npu`.
    device: the kind of device that it launches; empty for a transform plugin.
    native: its kernel is C++.
    """

    distribution: str
    package: str
    device: str
    native: bool
    licence: str
    author: str

    @property
    def prefix(self) -> str:
        """What its op's name begins with, so that the op is the only one of its name: `MyNpu`."""
        return "".join(part.capitalize() for part in self.package.split("_"))

    @property
    def op(self) -> str:
        return f"{self.prefix}AddAct"

    @property
    def target(self) -> str:
        """The device that its kernels are for."""
        return self.device or "cpu"


def plan_plugin(
    name: str,
    installed: Iterable[PluginRecord] = (),
    *,
    device: str | None = None,
    transform: bool = False,
    native: bool = False,
    licence: str = LICENCES[0],
    author: str = "",
) -> NewPlugin:
    """A plugin called `name`, checked against the plugins that are installed.

    device: the kind of device that it launches; None means the plugin's own name.
    transform: it launches no device, and adds its op and kernel to cpu.
    licence: one of LICENCES. author: whom the licence names.
    Raises ConfigError for a name or an option that cannot be, and PluginError for one that is taken.
    """
    records = tuple(installed)
    distribution, package = _names(name)
    if taken := next((record for record in records if record.name == package), None):
        raise PluginError(f"plugin {taken.label} is installed already; choose another name")
    if transform and device is not None:
        raise ConfigError(f"a transform plugin launches no device, so it cannot have device {device!r}")
    if licence not in LICENCES:
        raise ConfigError(f"there is no text for licence {licence!r}; choose from {', '.join(LICENCES)}")
    kind = "" if transform else _device(package if device is None else device, records)
    plugin = NewPlugin(distribution, package, kind, native, licence, author or f"the authors of {distribution}")
    _check_op(plugin)
    return plugin


def render_plugin(plugin: NewPlugin) -> dict[str, str]:
    """The text of each file, by its path in the package's folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # nothing else of aicore needs it

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # the files are no HTML
    )
    layers = ["project", *(["device"] if plugin.device else []), *(["native"] if plugin.native else [])]
    fields = _fields(plugin)
    files: dict[str, str] = {}
    for template in environment.list_templates(extensions=[_SUFFIX.lstrip(".")]):
        layer, _, path = template.partition("/")
        if layer in layers:
            name = environment.from_string(path).render(fields).removesuffix(_SUFFIX)
            files[name] = environment.get_template(template).render(fields)
    return dict(sorted(files.items()))


def write_plugin(plugin: NewPlugin, folder: Path) -> list[Path]:
    """Write the package's files to a folder that does not exist yet; returns their paths.

    Raises ConfigError when the folder exists or cannot be written.
    """
    files = {folder / name: text for name, text in render_plugin(plugin).items()}
    try:
        folder.mkdir(parents=True)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    except FileExistsError as error:
        raise ConfigError(f"{folder} exists already, and nothing in it was changed; choose another name") from error
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return list(files)


def next_commands(plugin: NewPlugin, folder: Path) -> dict[str, str]:
    """Shell commands to go on with, by what they are for: install, list, run, test."""
    place = str(folder) if folder.is_absolute() else os.path.join(os.curdir, folder)
    sources = [*_source("aicore"), *_source("aicore-cpu-numpy"), "-e", f"{place}[test]"]
    test = ["python", "-m", "pytest", place, "--aicore-target", plugin.target]
    if not plugin.device:
        test += ["--aicore-ops", plugin.op]
    return {
        "install": shlex.join(["python", "-m", "pip", "install", *sources]),
        "list": "aicore plugins list --load",
        "run": f"aicore run MODEL.onnx --random --target {plugin.target}",
        "test": shlex.join(test),
    }


def _names(name: str) -> tuple[str, str]:
    """Names of the distribution and of the package. Raises ConfigError for one that is not possible."""
    from packaging.utils import InvalidName, canonicalize_name  # as in discovery, only where it is needed

    try:
        distribution = canonicalize_name(name, validate=True)
    except InvalidName as error:
        rule = "letters, digits, and - _ . between them"
        raise ConfigError(f"{name!r} is no name of a distribution; it may have ASCII {rule}") from error
    package = distribution.replace("-", "_")
    if not package.isidentifier() or keyword.iskeyword(package):
        raise ConfigError(f"{name!r} would be the module {package!r}, which Python cannot import; choose another name")
    found = find_spec(package)  # without an origin it is a folder that happens to be called so
    if package in (*sys.stdlib_module_names, "src", "tests") or (found is not None and found.origin is not None):
        raise ConfigError(f"{name!r} would hide another module {package!r}; choose another name")
    return distribution, package


def _device(text: str, records: Iterable[PluginRecord]) -> str:
    """The kind that the text names, if no plugin launches it: with equal priority, nobody could use it."""
    try:
        name = parse_device(text)
    except PluginError as error:
        raise ConfigError(str(error)) from error
    if name.index is not None or name.kind in _RESERVED:
        raise ConfigError(f"{text!r} is no kind of device; choose a word such as 'npu', and neither of {_RESERVED}")
    if owner := next((record for record in records if name.kind in record.devices), None):
        raise PluginError(f"device {name.kind!r} is launched by plugin {owner.label}; choose another one with --device")
    return name.kind


def _check_op(plugin: NewPlugin) -> None:
    from aicore.ops import CORE  # needs NumPy, which naming plugins does not

    if plugin.op in CORE:
        raise ConfigError(f"the plugin's op would be {plugin.op}, which is an op of aicore; choose another name")


def _fields(plugin: NewPlugin) -> dict[str, Any]:
    if plugin.device:
        summary = f"The device {plugin.device} for aicore: a launcher, a few kernels, and a fused op with its pass"
    else:
        summary = "A fused op for aicore: its pass, and a kernel for cpu"
    return {
        "dot": ".",  # packaging tools leave out files whose names begin with one
        "distribution": plugin.distribution,
        "package": plugin.package,
        "plugin": plugin.package,
        "prefix": plugin.prefix,
        "op": plugin.op,
        "device": plugin.device,
        "target": plugin.target,
        "transform": not plugin.device,
        "native": plugin.native,
        "licence": plugin.licence,
        "author": plugin.author,
        "year": date.today().year,
        "summary": summary,
    }


def _source(distribution: str) -> Iterator[str]:
    """Arguments of pip that install a distribution from where this one came from, since an index has a namesake."""
    from importlib_metadata import PackageNotFoundError
    from importlib_metadata import distribution as find

    try:
        record = json.loads(find(distribution).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        record = {}
    url = record.get("url", "")
    if vcs := record.get("vcs_info"):
        folder = f"#subdirectory={record['subdirectory']}" if "subdirectory" in record else ""
        yield f"{distribution} @ {vcs['vcs']}+{url}@{vcs['commit_id']}{folder}"
    elif (path := _local(url)) is not None:
        if record.get("dir_info", {}).get("editable"):
            yield "-e"
        yield str(path)
    else:
        yield f"{distribution} @ {url}" if url and not url.startswith("file:") else f"{distribution}>=0.1"


def _local(url: str) -> Path | None:
    """The existing file or folder that a URL names."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    path = Path(url2pathname(urlsplit(url).path)) if url.startswith("file:") else None
    return path if path is not None and path.exists() else None
