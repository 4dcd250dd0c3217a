"""A kernel: one way to compute one op on one kind of device."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import field
from functools import cached_property
from types import FunctionType
from typing import Any, TypeAlias

from aicore.errors import AicoreError, PluginError
from aicore.ir import Op, TensorType
from aicore.kernels.guard import PARTS, guarded
from aicore.records import dataclass

Supports: TypeAlias = Callable[..., "str | None"]
Estimate: TypeAlias = Callable[..., float]
Workspace: TypeAlias = Callable[..., int]
Bind: TypeAlias = Callable[..., Any]
Settings: TypeAlias = Mapping[str, Any]

REFERENCE = "reference"
"""The variant that says what the op means: plain, right in float64, and the last choice of the selector."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function and what the selector and the planner must know about it; make one with `@kernel`.

    op: the op class that it computes.
    device: kind of device, such as `cpu`.
    variant: name among the kernels of this op on this device.
    function: called as `function(op, *inputs, out=..., workspace=...)`; see `returns` and `workspace`.
    dtypes: element types of the first operand (of the first output, for an op without operands); None means any.
    supports: `(op, *types) -> None | reason`, for what dtypes do not say; absent operands are None. Passes ask for
        typical sizes while sizes are open, so a dim that is no number depends on data.
    workspace: `(op, *types) -> bytes` of scratch memory; the function gets it as `workspace`, a uint8 array.
    bind: `(op, types, constants) -> callable(*inputs, out=..., workspace=...)`, called once for each step of a plan, to
        resolve attributes and prepack constant operands. `constants` has an array for each constant operand, else None.
        The launcher of a device may want something else than a callable, such as launches.
    estimate: `(op, *types) -> seconds` expected on this device; kernels without one rank behind those with one.
    tune: values to choose from by name of a setting, such as a block size; the first of each is its default. What is
        chosen is passed by keyword to `workspace`, `bind` and `estimate`; a kernel with settings has `bind`.
    wraps: for an op that holds another one as its `inner`, such as ChannelsLast: class of the op held.
    inplace: the output may be the memory of an input, where the op declares it.
    pitched: operands and results may be rows that lie apart: the last axis is dense, and the rows of all other axes are
        one pitch from one another. `workspace` gets `pitched=True` for a step with such results. Others get dense
        arrays only.
    precision: it rounds float32 operands to this, such as `tf32`, so that it serves only programs compiled with it.
    returns: the function has no `out` parameter and returns its result, or a tuple of them.
    plugin: the plugin that registered it; set by the registry.
    """

    op: type[Op]
    device: str
    variant: str
    function: Callable[..., Any]
    dtypes: frozenset[str] | None = None
    supports: Supports | None = None
    workspace: Workspace | None = None
    bind: Bind | None = None
    estimate: Estimate | None = None
    inplace: bool = False
    pitched: bool = False
    tune: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    precision: str | None = None
    returns: bool = False
    plugin: str = ""
    wraps: type[Op] | None = None

    @property
    def computes(self) -> str:
        """Name of the class of op that it is for; where it wraps one, of that."""
        return (self.wraps or self.op).__name__

    @cached_property
    def name(self) -> str:
        """`conv_im2col`: op in lower case and variant, as explain() and errors show it."""
        return f"{self.computes.lower()}_{self.variant}"

    @cached_property
    def settings(self) -> tuple[Settings, ...]:
        """Every combination of what `tune` offers, the default first; one that is empty when it offers nothing."""
        return tuple(dict(zip(self.tune, values, strict=True)) for values in itertools.product(*self.tune.values()))

    def reason_against(self, op: Op, *types: TensorType | None) -> str | None:
        """Why this kernel cannot run the op on operands of these types, or None if it can."""
        if self.dtypes is not None:
            first = next((t for t in types if t is not None), None)
            if first is not None and first.dtype not in self.dtypes:
                return f"does not take {first.dtype}"
        try:
            return None if self.supports is None else self.supports(op, *types)
        except PluginError as error:
            return str(error)  # a broken kernel of one plugin must not keep another's from running

    def of_plugin(self, name: str) -> Kernel:
        """The same kernel, registered by the plugin of this name, and guarded: see `guarded`."""
        made = copy(self)  # a process has hundreds of kernels, and `replace` takes ten times as long
        object.__setattr__(made, "plugin", name)
        for part in PARTS:
            if (call := getattr(self, part)) is not None:
                object.__setattr__(made, part, guarded(call, part, f"kernel {self.name} of plugin {name}"))
        return made

    def __repr__(self) -> str:
        return f"<kernel {self.name} on {self.device}>"


def kernel(
    op: type[Op],
    *,
    device: str,
    variant: str = REFERENCE,
    dtypes: frozenset[str] | set[str] | None = None,
    supports: Supports | None = None,
    workspace: Workspace | None = None,
    bind: Bind | None = None,
    estimate: Estimate | None = None,
    inplace: bool = False,
    pitched: bool = False,
    tune: Mapping[str, tuple[Any, ...]] | None = None,
    wraps: type[Op] | None = None,
    precision: str | None = None,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Turn a function into a Kernel; registering it is the plugin's `register_kernels` hook's business.

    Raises AicoreError when the function's parameters do not fit what is declared.
    """

    def wrap(function: Callable[..., Any]) -> Kernel:
        parameters = _parameters(function)
        if workspace is not None and bind is None and "workspace" not in parameters:
            raise AicoreError(f"kernel {function.__name__} declares workspace but has no parameter of that name")
        if tune and bind is None:
            raise AicoreError(f"kernel {function.__name__} declares settings, which only `bind` could receive")
        return Kernel(
            op=op,
            device=device,
            variant=variant,
            function=function,
            dtypes=None if dtypes is None else frozenset(dtypes),
            supports=supports,
            workspace=workspace,
            bind=bind,
            estimate=estimate,
            inplace=inplace,
            pitched=pitched,
            tune=tune or {},
            precision=precision,
            returns="out" not in parameters,
            wraps=wraps,
        )

    return wrap


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    """Names of the function's parameters; a plain function is spared the general answer, which takes 0.1 ms."""
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return inspect.signature(function).parameters.keys()
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
