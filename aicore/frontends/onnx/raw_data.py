"""The numbers of a model's initializers, taken out of its bytes before protobuf reads the rest.

protobuf would copy them twice, into its message and out of it, which takes most of the time to read a model: memory
that a process has not used before costs more than what is copied to it.

The format is Protocol Buffers' wire format (https://protobuf.dev/programming-guides/encoding): fields are a tag, which
holds the field's number and how its content ends, and the content.
"""

from __future__ import annotations

import mmap
from typing import TypeAlias

Content: TypeAlias = "bytes | mmap.mmap"

_SMALLEST = 1024
"""Bytes of an initializer that is worth the trouble."""
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
"""Numbers of the fields on the way to raw data, in onnx.proto."""
_VARINT, _LENGTH = 0, 2
_SIZES = {1: 8, 5: 4}
"""The kinds of fields, and bytes of the other ones."""
_MOST_SHIFT = 63


class _OddError(Exception):
    """Bytes that are left to protobuf, which reads them or says what is wrong with them."""


def split_raw_data(content: Content) -> tuple[bytes, dict[int, memoryview]]:
    """A model's bytes with the raw data of large initializers emptied, and these data by number of the initializer.

    Bytes that are no model, or one that nobody writes (two graphs, say), come back as they are.
    """
    try:
        return _split_model(content)
    except (_OddError, IndexError, KeyError):
        return content[:], {}


def _split_model(content: Content) -> tuple[bytes, dict[int, memoryview]]:
    graphs = _places(content, 0, len(content), _MODEL_GRAPH)
    if len(graphs) != 1:
        raise _OddError
    tag, start, end = graphs[0]
    view, found, pieces = memoryview(content), dict[int, memoryview](), list[bytes]()
    kept = start
    for number, (own_tag, own_start, own_end) in enumerate(_places(content, start, end, _GRAPH_INITIALIZER)):
        places = _places(content, own_start, own_end, _TENSOR_RAW_DATA) if own_end - own_start >= _SMALLEST else []
        if not places:
            continue
        raw_tag, raw_start, raw_end = places[-1]
        found[number] = view[raw_start:raw_end]
        head, rest = content[own_start : raw_tag + 1] + b"\0", content[raw_end:own_end]
        length = _varint_bytes(len(head) + len(rest))
        pieces += (content[kept : own_tag + 1], length, head, rest)
        kept = own_end
    if not found:
        raise _OddError
    graph = b"".join((*pieces, content[kept:end]))
    return b"".join((content[: tag + 1], _varint_bytes(len(graph)), graph, content[end:])), found


def _places(content: Content, start: int, end: int, wanted: int) -> list[tuple[int, int, int]]:
    """Of a message's fields of that number which have a length: where the tag and the content start, and its end."""
    found = []
    wanted = wanted << 3 | _LENGTH
    while start < end:
        tag = start
        key, start = _varint(content, tag)
        kind = key & 7
        if kind == _LENGTH:
            size, start = _varint(content, start)
            stop = start + size
        elif kind == _VARINT:
            stop = _varint(content, start)[1]
        else:
            stop = start + _SIZES[kind]
        if stop > end:
            raise _OddError
        if key == wanted:
            found.append((tag, start, stop))
        start = stop
    return found


def _varint(content: Content, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    byte = content[at]
    if byte < 128:  # as most
        return byte, at + 1
    number = shift = 0
    while byte >= 128:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        byte = content[at]
    if not byte or shift > _MOST_SHIFT:  # written with more groups than it needs
        raise _OddError
    return number | byte << shift, at + 1


def _varint_bytes(number: int) -> bytes:
    groups = []
    while number >= 128:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes((*groups, number))
