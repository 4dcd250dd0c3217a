"""The CUDA source of a chain: a function for one element, and a kernel that calls it for all of them.

A thread computes a few vectors of neighbouring elements, each of one access of up to 16 bytes, and reads all of them
before it computes any. Where no operand broadcasts but single numbers, the source knows no sizes, so that it serves
all of them. Otherwise the sizes stand in it as numbers, and the compiler divides by them with multiplications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aicore.ir import Op, TensorType
from aicore.ops import activation, arithmetic, elementwise
from aicore_cuda_ge.codegen.chain import Chain
from aicore_cuda_ge.codegen.elements import ELEMENTS
from aicore_cuda_ge.codegen.formulas import Argument, expression
from aicore_cuda_ge.codegen.indexing import Space, collapse, dense_strides

THREADS = 256
_MOST_BLOCKS = 1 << 20
_FEW_BLOCKS = 1024
"""With fewer, a thread takes one vector: there would be idle multiprocessors."""
_MOST_VECTORS = 2
_ACCESS = 16
"""Bytes that a thread reads or writes at once at most."""
_MOST_LANES = 8
_LARGEST_32_BIT = 2**31
_HEAVY: frozenset[type[Op]] = frozenset(
    {
        *(elementwise.Sin, elementwise.Cos, elementwise.Tan, elementwise.Asin, elementwise.Acos, elementwise.Atan),
        *(elementwise.Sinh, elementwise.Cosh, elementwise.Asinh, elementwise.Acosh, elementwise.Atanh),
        *(elementwise.Erf, elementwise.Exp, elementwise.Log, arithmetic.Pow, arithmetic.Mod, arithmetic.Div),
        *(activation.Elu, activation.Selu, activation.Celu, activation.Gelu, activation.Sigmoid, activation.Swish),
        *(activation.Mish, activation.Softplus, activation.Softsign, activation.Tanh),
    }
)
"""Ops of dozens of instructions: more vectors a thread would make much code and hide no latency."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel as text, without the prelude, and how to launch it.

    name: of the function, whose parameters are a pointer for each operand and result, then `count` as int64.
    count: elements. blocks: of THREADS threads each.
    lanes: elements of a vector. vectors: that a thread takes at a time.
    """

    name: str
    text: str
    count: int
    blocks: int
    lanes: int
    vectors: int


@cache
def prelude() -> str:
    """What every source begins with."""
    return (Path(__file__).parent / "prelude.cuh").read_text(encoding="utf-8")


def source_of(chain: Chain, name: str = "") -> Source:
    """The kernel of the chain for the sizes of its types; the results have at least one element.

    name: of the function; made of the ops when empty.
    """
    layout = _Layout.of(chain)
    name = name or f"aicore_{chain.title}"
    lines = [*_element_function(chain, name), "", *_kernel(chain, layout, name)]
    text = "\n".join(["namespace aicore {", "", *lines, "", "}  // namespace aicore", ""])
    return Source(name, text, layout.space.size, layout.blocks, layout.lanes, layout.vectors)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How elements are shared out among threads.

    places: index among the space's operands of each operand that is read.
    is_even: rows are whole vectors, so that all elements of a vector have the same indices but for the last one.
        Otherwise operands that broadcast are read one by one, each at indices of its own.
    """

    space: Space
    places: Mapping[str, int]
    lanes: int
    vectors: int
    index: str
    is_even: bool

    @classmethod
    def of(cls, chain: Chain) -> _Layout:
        read = list(_read(chain))
        space = collapse(chain.results[0][1].static_shape, [tensor.static_shape for _, tensor in read])
        sizes = [ELEMENTS[tensor.dtype].size for _, tensor in chain.results]
        sizes += [ELEMENTS[t.dtype].size for i, (_, t) in enumerate(read) if not space.is_single(i)]
        lanes = min(_ACCESS // max(sizes), _MOST_LANES)
        if not space.is_flat and space.dims[-1] % lanes and not space.dims[-1] % (lanes // 2):
            lanes //= 2  # half an access is better than elements one by one
        vectors = 1 if any(type(step.op) in _HEAVY for step in chain.steps) else _MOST_VECTORS
        if space.size // (lanes * vectors * THREADS) < _FEW_BLOCKS:
            vectors = 1
        index = "u32" if space.size < _LARGEST_32_BIT else "u64"  # no operand is larger than the result
        places = {operand: i for i, (operand, _) in enumerate(read)}
        is_even = space.is_flat or not space.dims[-1] % lanes
        return cls(space, places, lanes, vectors, index, is_even)

    @property
    def blocks(self) -> int:
        each = self.lanes * self.vectors * THREADS
        return min(max(-(-self.space.size // each), 1), _MOST_BLOCKS)

    @property
    def has_rest(self) -> bool:
        """Whether elements may be left that fill no vector; a flat source serves all sizes."""
        return self.lanes > 1 and (self.space.is_flat or not self.is_even)

    def is_single(self, name: str) -> bool:
        return self.space.is_single(self.places[name])

    def is_whole(self, name: str) -> bool:
        return self.space.is_whole(self.places[name])

    def access(self, name: str) -> str:
        """How elements of a vector are read: `vector` by one access, `one` for all of them, or `each`."""
        if self.is_whole(name):
            return "vector"
        if not self.is_even:
            return "each"
        return "vector" if self.space.strides[self.places[name]][-1] else "one"

    def offset(self, name: str, element: str) -> str:
        """Where the operand has what belongs to the element of this number."""
        if self.is_whole(name):
            return element
        dims, strides = self.space.dims, self.space.strides[self.places[name]]
        inner = dense_strides(dims)
        terms = []
        for axis, stride in enumerate(strides):
            if not stride:
                continue
            index = element if inner[axis] == 1 else f"{element} / {inner[axis]}u"
            index = f"{index} % {dims[axis]}u" if axis else index
            terms.append(index if stride == 1 else f"{index} * {stride}u")
        return " + ".join(terms)


def _element_function(chain: Chain, name: str) -> Iterator[str]:
    """`name_element(x0, x1, ..., r0, ...)`: one element of each result, from one of each operand."""
    known = {c: Argument.constant(number, dtype) for c, (dtype, number) in chain.constants.items()}
    parameters = []
    for operand, tensor in _read(chain):
        known[operand] = Argument.variable(operand, tensor.dtype)
        parameters.append(f"const {ELEMENTS[tensor.dtype].stored} {operand}")
    parameters += [f"{ELEMENTS[t.dtype].stored} &r{i}" for i, (_, t) in enumerate(chain.results)]
    yield f"INLINE void {name}_element({', '.join(parameters)}) {{"
    for step in chain.steps:
        arguments = [None if argument is None else known[argument] for argument in step.arguments]
        stored = ELEMENTS[step.dtype].stored
        yield f"    const {stored} {step.result} = {expression(step.op, step.dtype, arguments)};"
        known[step.result] = Argument.variable(step.result, step.dtype)
    for i, (result, _) in enumerate(chain.results):
        yield f"    r{i} = {known[result].stored};"
    yield "}"


def _kernel(chain: Chain, layout: _Layout, name: str) -> Iterator[str]:
    lanes, vectors = layout.lanes, layout.vectors
    yield f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}({", ".join(_parameters(chain))}) {{'
    yield "    begin();"
    yield f"    typedef {layout.index} Index;"
    yield f"    const Index all = Index(count / {lanes});"
    for operand, tensor in _read(chain):
        if layout.is_single(operand):
            yield f"    const {ELEMENTS[tensor.dtype].stored} {operand} = *p{operand[1:]};"
    each = THREADS * vectors
    yield f"    const Index step = Index(gridDim.x) * {each};"
    yield f"    for (Index first = Index(blockIdx.x) * {each} + threadIdx.x; first < all; first += step) {{"
    yield from _indented(_loop_body(chain, layout, name), 8)
    yield "    }"
    if layout.has_rest:
        yield f"    const Index e = all * {lanes} + Index(blockIdx.x) * {THREADS} + threadIdx.x;"
        yield f"    if (e < count) {name}_element({', '.join(_rest(chain, layout))});"
    yield "}"


def _loop_body(chain: Chain, layout: _Layout, name: str) -> Iterator[str]:
    loaded = [(operand, tensor) for operand, tensor in _read(chain) if not layout.is_single(operand)]
    for operand, tensor in loaded:
        stored = ELEMENTS[tensor.dtype].stored
        kind = stored if layout.access(operand) == "one" else f"Vector<{stored}, {layout.lanes}>"
        yield f"{kind} {operand}[{layout.vectors}];"
    yield from _for_each_vector(layout, (_load(operand, layout) for operand, _ in loaded))
    kinds = [ELEMENTS[tensor.dtype].stored for _, tensor in chain.results]
    yield from _for_each_vector(
        layout,
        (
            *(f"Vector<{kind}, {layout.lanes}> r{i};" for i, kind in enumerate(kinds)),
            *_for_each_lane(layout, f"{name}_element({', '.join(_lane(chain, layout))});"),
            *(f"store(q{i} + e, r{i});" for i in range(len(kinds))),
        ),
    )


def _for_each_vector(layout: _Layout, statements: Iterable[str]) -> Iterator[str]:
    """The statements for vector n of this thread, whose first element is number e."""
    yield "#pragma unroll"
    yield f"for (int n = 0; n < {layout.vectors}; n++) {{"
    yield f"    const Index v = first + n * {THREADS}, e = v * {layout.lanes};"
    yield "    if (v >= all) break;"
    yield from _indented(statements, 4)
    yield "}"


def _for_each_lane(layout: _Layout, statement: str) -> tuple[str, str]:
    return "#pragma unroll", f"for (int k = 0; k < {layout.lanes}; k++) {statement}"


def _load(operand: str, layout: _Layout) -> str:
    pointer = f"p{operand[1:]}"
    match layout.access(operand):
        case "vector":
            return f"load({operand}[n], {pointer} + {layout.offset(operand, 'e')});"
        case "one":
            return f"{operand}[n] = {pointer}[{layout.offset(operand, 'e')}];"
    each = f"{operand}[n].at[k] = {pointer}[{layout.offset(operand, '(e + k)')}];"
    return "\n".join(_for_each_lane(layout, each))


def _lane(chain: Chain, layout: _Layout) -> Iterator[str]:
    """Arguments of the element function for lane k of vector n."""
    for operand, _ in _read(chain):
        if layout.is_single(operand):
            yield operand
        else:
            yield f"{operand}[n]" if layout.access(operand) == "one" else f"{operand}[n].at[k]"
    yield from (f"r{i}.at[k]" for i in range(len(chain.results)))


def _rest(chain: Chain, layout: _Layout) -> Iterator[str]:
    """Arguments of the element function for element e, in memory."""
    for operand, _ in _read(chain):
        yield operand if layout.is_single(operand) else f"p{operand[1:]}[{layout.offset(operand, 'e')}]"
    yield from (f"q{i}[e]" for i in range(len(chain.results)))


def _parameters(chain: Chain) -> Iterator[str]:
    for i, operand in enumerate(chain.operands):
        known = operand is not None and operand[0] in chain.read
        yield f"const {ELEMENTS[operand[1].dtype].stored if known and operand is not None else 'void'} *p{i}"
    for i, (_, tensor) in enumerate(chain.results):
        yield f"{ELEMENTS[tensor.dtype].stored} *q{i}"
    yield "i64 count"


def _read(chain: Chain) -> Iterator[tuple[str, TensorType]]:
    return (operand for operand in chain.operands if operand is not None and operand[0] in chain.read)


def _indented(statements: Iterable[str], columns: int) -> Iterator[str]:
    lines = (line for statement in statements for line in statement.splitlines())
    return (line if line.startswith("#") else " " * columns + line for line in lines)
