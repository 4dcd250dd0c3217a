"""What was measured for a whole graph: which choices of its passes pay on a device, for given shapes of its inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from aicore.config import Precision
from aicore.errors import GraphError
from aicore.ir import Graph, TensorType, Value, op_text, symbols
from aicore.records import dataclass
from aicore.runtime import Device
from aicore.tuning.problems import device_text, package_digest
from aicore.tuning.records import Record
from aicore.tuning.store import Row, TuningStore

PREFIX = "graph "
DEFAULT = "default"
_SMALL = 16
"""Elements of a constant that is part of a graph's structure: axes, sizes, bounds. Of weights only the type is."""


@dataclass(frozen=True)
class Verdict:
    """What to keep for a graph: choices as text, `default` for none.

    seconds: of one run, by choices. gain: time of the chosen ones over the rival's: the median and its interval.
    refused: choices that compute other numbers, with the reason.
    """

    chosen: str
    seconds: dict[str, float]
    gain: tuple[float, float, float]
    refused: dict[str, str]


class GraphRecords:
    """Records of one graph on one device. They hold for the structure, names, and types of its inputs.

    considered: digest of what could be chosen, and of the code behind it; see `considered_passes`.
    """

    def __init__(
        self, store: TuningStore, device: Device, graph: Graph, considered: Callable[[], str],
        precision: Precision = "float32",
    ) -> None:  # fmt: skip
        self.store = store
        self._device = device
        self._graph = graph
        self._considered = considered
        self._precision = precision
        self._fingerprint = ""

    def find(self, types: Sequence[TensorType]) -> Record | str:
        """The record for inputs of these types, or the reason why there is none.

        Asked where the number of threads is set, as times depend on it.
        """
        device = device_text(self._device)
        if self.store.unusable or not self.store.has(device, PREFIX):
            return "no whole graph was measured on this device"
        found = self.store.peek(device, self.problem(types))
        if isinstance(found, Record) and found.considered != self._considered():
            return "passes or kernels have changed since it was measured"
        return found

    def keep(self, types: Sequence[TensorType], verdict: Verdict) -> None:
        """Replace what is known of the graph. Raises TuningError when the store cannot be written."""
        record = Record(
            chosen=verdict.chosen,
            default=DEFAULT,
            seconds=verdict.seconds,
            gain=verdict.gain,
            considered=self._considered(),
            refused=verdict.refused,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.store.keep([Row(device_text(self._device), self.problem(types), record)])

    def problem(self, types: Sequence[TensorType]) -> str:
        """How the store names it: `graph 0c51d2c5a9b8a07e(float32[1,3,224,224])`."""
        self._fingerprint = self._fingerprint or fingerprint(self._graph)
        lowered = "" if self._precision == "float32" else f"{self._precision} "
        return f"{PREFIX}{lowered}{self._fingerprint}({', '.join(map(str, types))})"


def fingerprint(graph: Graph) -> str:
    """16 hex digits of a hash of the structure, with names; weights count by their types, not by their numbers."""
    state = hashlib.blake2b(digest_size=8)
    number: dict[Value | None, int] = {None: -1}
    order: dict[str, int] = {}  # names of unknown sizes differ from process to process, their order does not

    def put(*parts: object) -> None:
        state.update(repr(parts).encode())

    for value in graph.inputs:
        number[value] = len(number)
        dims = value.shape or ()
        names = [order.setdefault(name, len(order)) for dim in dims for name in sorted(symbols(dim))]
        put(value.name, value.dtype, [dim if isinstance(dim, int) else -1 for dim in dims], names)
    for node in graph.nodes:
        put(_op_text(node.op), [_reference(value, number) for value in node.inputs])
        for value in node.outputs:
            number[value] = len(number)
            put(value.name)
    put([(name, _reference(value, number)) for name, value in graph.outputs], graph.state)
    return state.hexdigest()


def considered_passes(passes: Iterable[tuple[str, str]], packages: Iterable[str]) -> str:
    """Digest of the passes, by name and options, and of the code of the packages that hold them and the kernels."""
    lines = [f"{name} {options}" for name, options in passes]
    lines += [package_digest(name) for name in sorted(set(packages))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _op_text(op: object) -> str:
    try:
        return op_text(op)  # type: ignore[arg-type]
    except GraphError:  # an attribute that text cannot hold
        return repr(op)


def _reference(value: Value | None, number: dict[Value | None, int]) -> object:
    if value is None or value.constant is None:
        return number[value]
    array = value.constant.array
    return str(value.type), array.tolist() if array.size <= _SMALL else None
