"""`aicore plugins new`: the package of a plugin, ready to be installed and tested."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aicore.cli._report import Json, print_json, show


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the plugin, and of its folder: my_npu.")],
    device: Annotated[
        str | None, typer.Option("--device", metavar="KIND", help="Kind of device that it launches [its own name].")
    ] = None,
    transform: Annotated[
        bool, typer.Option("--transform", help="No device: only an op, its pass, and a kernel for cpu.")
    ] = False,
    native: Annotated[
        bool, typer.Option("--native", help="With a kernel in C++, built by CMake and pybind11.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the plugin's own folder is made.")
    ] = Path(),
    licence: Annotated[
        str, typer.Option("--license", metavar="ID", help="Apache-2.0, MIT or BSD-3-Clause.")
    ] = "Apache-2.0",
    author: Annotated[str, typer.Option("--author", metavar="NAME", help="Whom the licence names.")] = "",
    as_json: Json = False,
) -> None:
    """Write the package of a new plugin: launcher, kernels, a fused op and its pass, tests, and all around them.

    The device is emulated in NumPy, and works as it is. docs/writing-a-backend.md tells how to make it yours.
    """
    from aicore.plugins.new import next_commands, plan_plugin, write_plugin  # `--help` needs none of it
    from aicore.plugins.registry import plugin_registry

    plugin = plan_plugin(
        name,
        plugin_registry().records,
        device=device,
        transform=transform,
        native=native,
        licence=licence,
        author=author,
    )
    folder = output / name
    files = write_plugin(plugin, folder)
    commands = next_commands(plugin, folder)
    if as_json:
        print_json(
            {
                "plugin": plugin.package,
                "distribution": plugin.distribution,
                "device": plugin.device,
                "folder": str(folder),
                "files": [str(path.relative_to(folder)) for path in files],
                "commands": commands,
            }
        )
        return
    what = f"device {plugin.device}" if plugin.device else "a transform"
    show(f"{folder}: {len(files)} files of plugin {plugin.package}, {what}, {plugin.licence}. Next:", "")
    show(*(f"    {command}" for command in commands.values()))
