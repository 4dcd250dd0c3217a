"""Nothing that a user may name goes without documentation: variables, hooks, core ops."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

import aicore.config
from aicore.ops import CORE
from aicore.plugins.hookspecs import HOOKS
from aicore.plugins.states import Finding, State
from tools.op_docs import PAGE, has_docstring, page

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


@pytest.mark.parametrize("name", sorted(aicore.config._NAMES))
def test_variable(name: str) -> None:
    assert f"| `{name}` |" in (DOCS / "environment.md").read_text(encoding="utf-8")


def test_no_variable_is_documented_that_does_not_exist() -> None:
    rows = [line for line in (DOCS / "environment.md").read_text(encoding="utf-8").splitlines() if "| `AICORE_" in line]
    assert {row.split("`")[1] for row in rows} == aicore.config._NAMES


@pytest.mark.parametrize("hook", HOOKS)
def test_hook(hook: str) -> None:
    assert f"| `{hook}(" in (DOCS / "layout.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*State, *filter(None, get_args(Finding))])
def test_state_and_finding_of_a_plugin(word: str) -> None:
    rows = [line for line in (DOCS / "plugins.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert any(f"`{word}`" in row.split("|")[1] for row in rows)


@pytest.mark.parametrize("name", sorted(CORE))
def test_op(name: str) -> None:
    assert has_docstring(CORE[name]), f"{name} has no docstring"


def test_the_page_of_ops_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/ops.md is stale: run `make docs`"
