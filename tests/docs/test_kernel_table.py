"""The table of kernels by op and element type."""

from __future__ import annotations

from typing import Any

import pytest

import tools.kernel_table
from aicore.kernels import kernel
from aicore.ops.arithmetic import Add
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import MaxPool


def made(op: Any, variant: str, **options: Any) -> Any:
    return kernel(op, device="cpu", variant=variant, **options)(lambda op, *operands, out: None)


def test_variants_of_one_set_of_types_share_a_line() -> None:
    floats = frozenset({"float32", "float16"})
    kernels = [
        made(Add, "b", dtypes=floats),
        made(Add, "a", dtypes=floats),
        made(Add, "any"),
        made(ChannelsLast, "c", dtypes={"int8"}, wraps=MaxPool),
    ]
    assert tools.kernel_table.table(kernels) == [
        ("Add", "a b", "f16 f32"),
        ("Add", "any", "all"),
        ("ChannelsLast(MaxPool)", "c", "int8"),
    ]


def test_the_command_prints_what_a_plugin_registers(capsys: pytest.CaptureFixture[str]) -> None:
    tools.kernel_table.main(["aicore_cpu_numpy.plugin"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("MatMul ") and "reference" in line for line in lines)
