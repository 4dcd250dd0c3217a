"""Print for which ops and element types a plugin has kernels: `python -m tools.kernel_table aicore_cuda_ge.plugin`.

Read from the kernels that it registers, so that it cannot be out of date; no device is needed. Lines name the op, the
variants and the types that they take; what a kernel refuses beside types is its `supports`, which `program.explain()`
tells for a model.
"""

from __future__ import annotations

import argparse
import importlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from aicore.ir import DTYPES
from aicore.kernels import Kernel, load_kernels

_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


def table(kernels: Iterable[Kernel]) -> list[tuple[str, str, str]]:
    """(op, variants, element types) by op; variants with the same types share a line."""
    rows: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for kernel in kernels:
        rows[_name(kernel), _types(kernel)].append(kernel.variant)
    return sorted((op, " ".join(sorted(variants)), _said(types)) for (op, types), variants in rows.items())


def _name(kernel: Kernel) -> str:
    inner = kernel.wraps
    return kernel.op.__name__ if inner is None else f"{kernel.op.__name__}({inner.__name__})"


def _types(kernel: Kernel) -> frozenset[str]:
    return frozenset(DTYPES) if kernel.dtypes is None else frozenset(kernel.dtypes)


def _said(types: frozenset[str]) -> str:
    if types >= frozenset(DTYPES):
        return "all"
    return " ".join(_SHORT.get(name, name) for name in sorted(types))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="kernel_table", description=__doc__)
    parser.add_argument("module", help="with the hook register_kernels, such as aicore_cuda_ge.plugin")
    kernels = importlib.import_module(parser.parse_args(arguments).module).register_kernels()
    for op, variants, types in table(load_kernels(kernels)):
        print(f"{op:32} {variants:40} {types}")


if __name__ == "__main__":
    main()
