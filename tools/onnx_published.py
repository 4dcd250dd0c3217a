"""Write aicore/frontends/onnx/published.json from the installed onnx package: `python -m tools.onnx_published`.

Only standard domains whose published versions never change are in it.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import onnx
from onnx import defs
from onnx.helper import OP_SET_ID_VERSION_MAP
from onnx.onnx_ml_pb2 import DESCRIPTOR

from aicore.frontends.onnx.published import FILE
from aicore.frontends.onnx.schema import of_schema, to_row

DOMAINS = ("", "ai.onnx.ml")
_NOTICE = (
    "Derived from ONNX (https://github.com/onnx/onnx), Copyright (c) ONNX Project Contributors, Apache License 2.0; "
    "written by `python -m tools.onnx_published`."
)


def content() -> dict[str, Any]:
    """What the installed package publishes, as JSON."""
    types: list[frozenset[str]] = []
    operators: dict[str, dict[str, list[Any]]] = {domain: {} for domain in DOMAINS}
    schemas = sorted(defs.get_all_schemas_with_history(), key=lambda schema: (schema.name, schema.since_version))
    for schema in schemas:
        if schema.domain in DOMAINS:
            operators[schema.domain].setdefault(schema.name, []).append(to_row(of_schema(schema), types))
    return {
        "notice": _NOTICE,
        "onnx": onnx.__version__,
        "messages": base64.b64encode(DESCRIPTOR.serialized_pb).decode(),
        "ir_version": int(onnx.IR_VERSION),
        "opsets": {domain: _newest(domain or "ai.onnx") for domain in DOMAINS},
        "types": [sorted(several) for several in types],
        "operators": operators,
    }


def _newest(domain: str) -> int:
    return max(opset for (other, opset) in OP_SET_ID_VERSION_MAP if other == domain)


def text(found: dict[str, Any]) -> str:
    """As the file has it: a line for each operator, so that changes can be read."""
    head = {name: value for name, value in found.items() if name not in ("types", "operators")}
    lines = [json.dumps(head)[:-1] + ',\n"types": [']
    lines.append(",\n".join(json.dumps(several, separators=(",", ":")) for several in found["types"]))
    lines.append('],\n"operators": {')
    domains = []
    for domain, operators in found["operators"].items():
        rows = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(several, separators=(',', ':'))}" for name, several in operators.items()
        )
        domains.append(f"{json.dumps(domain)}: {{\n{rows}\n}}")
    return "\n".join(lines) + ",\n".join(domains) + "}}\n"


def main() -> int:
    FILE.write_text(text(content()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
