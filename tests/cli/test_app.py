"""The application: help that needs no command module, errors without traceback, commands of plugins."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
import typer

from aicore.cli import main
from aicore.cli.app import COMMANDS

HELLO = "import typer\napp = typer.Typer(add_completion=False)\n@app.command()\ndef hello(name: str) -> None:\n"


def test_help_lists_the_commands_and_imports_none(command_line: Any) -> None:
    result = command_line("--help")
    assert result.status == 0
    for name, subcommand in COMMANDS.items():
        assert name in result.out
        assert subcommand.summary in result.out
        assert subcommand.module not in result.modules
    assert "AICORE_DEBUG=1" in result.out
    assert "numpy" not in result.modules


def test_the_version(command_line: Any) -> None:
    from aicore.plugins.discovery import core_version

    result = command_line("--version")
    assert (result.status, result.out) == (0, f"aicore {core_version()}\n")
    assert "importlib_metadata.entry_points" not in result.modules


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_app_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(COMMANDS[name].module)
    assert isinstance(module.app, typer.Typer)
    assert main([name, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--install-completion" not in text, "make the Typer with add_completion=False"


@pytest.mark.parametrize("arguments", [["nonsense"], ["plugins", "nonsense"], ["plugins", "list", "--nonsense"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_near_miss_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugin"]) == 2
    assert "Did you mean 'plugins'?" in capsys.readouterr().err


def test_a_command_of_a_plugin_is_loaded_when_invoked(command_line: Any, install: Any) -> None:
    group = "[aicore.commands]\nhello = npu_package.hello:app\nbroken = npu_package.broken:app\nodd = os:path"
    hello = HELLO + "    print('hello', name)\n"
    install("npu", "", "kind='transform'", group, hello=hello, broken="raise SystemExit(0)")
    listed = command_line("--help")
    assert "From the plugin distribution dist-npu." in listed.out
    assert "npu_package.hello" not in listed.modules
    assert command_line("hello", "you").out == "hello you\n"
    broken = command_line("broken")
    assert broken.status == 2
    assert "command 'broken' of dist-npu 1.5 (npu_package.broken:app) cannot be loaded: SystemExit: 0" in broken.err
    assert "is a module; it must be a typer.Typer" in command_line("odd").err


def test_a_plugin_cannot_replace_a_command(command_line: Any, install: Any) -> None:
    install("npu", "", "kind='transform'", "[aicore.commands]\nplugins = npu_package.evil:app", evil="raise OSError")
    assert command_line("plugins", "list").status == 0
    listed = command_line("--help")
    assert listed.err == "aicore: warning: command 'plugins' of dist-npu 1.5 is ignored: the name is taken\n"
    assert COMMANDS["plugins"].summary in listed.out


def test_python_dash_m_is_the_same_command() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "aicore", "--version"], capture_output=True, text=True, check=False
    )
    assert finished.stdout.startswith("aicore ")
