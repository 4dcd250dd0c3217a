"""What the onnx package publishes and reading a model needs: messages of the format, and operators of every version.

A copy, since importing the package takes as long as all else that a first inference imports. Published versions never
change; what is newer than the copy, and domains that it lacks, are asked of the installed package. `published.json` is
made from it by `python -m tools.onnx_published`.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("published.json")


class Published(NamedTuple):
    """messages: the descriptor of onnx.proto, serialised. ir_version: the newest of the format.

    opsets: the newest version of each domain. types: sets of type texts, which operators name by number.
    operators: by domain and name, a row for each version, the oldest first, as `aicore.frontends.onnx.schema` has it.
    """

    messages: bytes
    ir_version: int
    opsets: dict[str, int]
    types: list[frozenset[str]]
    operators: dict[str, dict[str, list[Any]]]


@cache
def published() -> Published:
    """The copy."""
    content = json.loads(FILE.read_bytes())
    return Published(
        base64.b64decode(content["messages"]),
        content["ir_version"],
        content["opsets"],
        [frozenset(types) for types in content["types"]],
        content["operators"],
    )


def newest_ir_version(wanted: int) -> int:
    """The newest version of the format that is known, as far as one needs to ask to decide on `wanted`."""
    known = published().ir_version
    if wanted <= known:
        return known
    from onnx import IR_VERSION

    return max(known, int(IR_VERSION))


def newest_opset(wanted: int) -> int:
    """The newest version of the standard operators that is known, as far as one needs to ask to decide on `wanted`."""
    known = published().opsets[""]
    if wanted <= known:
        return known
    from onnx import defs

    return max(known, int(defs.onnx_opset_version()))
