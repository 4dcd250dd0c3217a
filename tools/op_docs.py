"""Write docs/ops.md from the docstrings of the core ops: `python -m tools.op_docs`, or `make docs`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import defaultdict
from typing import Any

from aicore.ir import Op, is_fused
from aicore.ops import CORE
from tools.models import ROOT

PAGE = ROOT / "docs" / "ops.md"
_HEAD = """\
# Ops

Every op of the core, by family. Names and semantics are those of the newest ONNX opset; an op that ONNX does not have
says what it means. Operands come first, by position; behind the star are fields, by name. A field that
an operand stands for in ONNX, such as axes, holds it once it is constant. *Fused* marks an op that is defined by its
decomposition alone.

This page is generated from the docstrings; `make docs` renews it.
"""


def page() -> str:
    """The text of docs/ops.md."""
    families: dict[str, list[type[Op]]] = defaultdict(list)
    for name in sorted(CORE):
        families[CORE[name].__module__].append(CORE[name])
    return "\n".join([_HEAD, *(_family(module, families[module]) for module in sorted(families))])


def has_docstring(op: type[Op]) -> bool:
    """Whether someone wrote a docstring; a dataclass without one is given its signature."""
    return bool(op.__doc__) and not str(op.__doc__).startswith(f"{op.__name__}(")


def _family(module: str, ops: list[type[Op]]) -> str:
    about = inspect.cleandoc(sys.modules[module].__doc__ or "")
    return "\n".join([f"## {module.rpartition('.')[2]}\n", f"{about}\n", *map(_op, ops)])


def _op(op: type[Op]) -> str:
    marks = [f"domain `{op.domain}`"] if op.domain else []
    marks += ["*fused*"] if _is_fused(op) else []
    about = inspect.cleandoc(op.__doc__ or "") if has_docstring(op) else ""
    fields = [_field(field) for field in dataclasses.fields(op)]  # type: ignore[arg-type]
    operands = _operands(op)
    variadic = any(operand.startswith("*") for operand in operands)
    signature = ", ".join([*operands, *(["*"] if fields and not variadic else []), *fields])
    lines = [f"### {op.__name__}\n", f"`{op.__name__}({signature})`" + "".join(f" · {mark}" for mark in marks) + "\n"]
    return "\n".join([*lines, f"{about}\n"])


def _is_fused(op: type[Op]) -> bool:
    return is_fused(object.__new__(op))


def _operands(op: type[Op]) -> list[str]:
    """The operands as the op's own `infer` or `decompose` names them; an optional one has its default."""
    skipped = 1 if op.infer is not Op.infer else 2  # self; and the namespace of decompose
    method = op.infer if op.infer is not Op.infer else op.decompose
    parameters = list(inspect.signature(method).parameters.values())[skipped:]
    return [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]


def _field(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"{field.name}={field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}={field.default_factory()!r}"
    return field.name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
