"""Names of devices are read in one place."""

from __future__ import annotations

import pytest

from aicore.errors import PluginError
from aicore.plugins.device_names import DeviceName, find_device, parse_device


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", DeviceName("cpu")),
        ("cuda:0", DeviceName("cuda", 0)),
        (" CUDA:12 ", DeviceName("cuda", 12)),
        ("my_npu2", DeviceName("my_npu2")),
    ],
)
def test_parse(text: str, name: DeviceName) -> None:
    assert parse_device(text) == name
    assert parse_device(str(name)) == name


@pytest.mark.parametrize("text", ["", ":0", "cuda:", "cuda:-1", "cuda:01", "cuda:0:0", "my-npu", "7", "cuda:x", "ü"])
def test_what_is_no_name_raises(text: str) -> None:
    with pytest.raises(PluginError, match="is not a device's name"):
        parse_device(text)


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        ("cuda", ["cuda:1", "cuda:0", "cpu"], "cuda:0"),
        ("cuda", ["cuda:10", "cuda:9"], "cuda:9"),
        ("cuda:0", ["cuda"], "cuda"),
        ("cpu:0", ["cpu"], "cpu"),
        ("cpu:1", ["cpu"], None),
        ("cuda:2", ["cuda:0", "cuda:1"], None),
        ("npu", ["cpu"], None),
        ("cpu", [], None),
    ],
)
def test_find(text: str, names: list[str], found: str | None) -> None:
    assert find_device(text, names) == found
