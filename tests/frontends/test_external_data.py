"""External data is mapped from plain files beside the model; every way out of the folder, and every lie, is refused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from aicore.errors import ModelError
from aicore.frontends.onnx import load_model
from tests.frontends.models import model, node, run

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
NAME = "weights.bin"


def external_model(entries: dict[str, str] | list[tuple[str, str]], dims: tuple[int, ...] = (3, 4)) -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"], {"w": np.float32(0)})
    tensor = made.graph.initializer[0]
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.data_location = "w", TensorProto.FLOAT, TensorProto.EXTERNAL
    tensor.dims.extend(dims)
    for key, value in entries.items() if isinstance(entries, dict) else entries:
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the weights behind 16 bytes of something else, and a secret beside the folder."""
    home = tmp_path / "model"
    home.mkdir()
    (home / NAME).write_bytes(bytes(16) + WEIGHT.tobytes() + b"tail")
    (tmp_path / "secret").write_bytes(bytes(100))
    return home


@pytest.fixture
def load(folder: Path) -> Callable[..., Any]:
    def load(entries: dict[str, str] | list[tuple[str, str]], dims: tuple[int, ...] = (3, 4)) -> Any:
        path = folder / "m.onnx"
        path.write_bytes(external_model(entries, dims).SerializeToString())
        return load_model(path)

    return load


def weight_of(graph: Any) -> np.ndarray[Any, Any]:
    (weight,) = [v for v in graph.nodes[0].inputs if v.constant is not None]
    return weight.constant.array  # type: ignore[no-any-return]


def test_offset_and_length_are_followed(load: Callable[..., Any], folder: Path) -> None:
    for entries in ({"offset": "16", "length": "48"}, {"offset": "16"}):
        array = weight_of(load({"location": NAME, **entries}))
        np.testing.assert_array_equal(array, WEIGHT)
        assert not array.flags.writeable
    assert run(folder / "m.onnx", x=np.ones(1, np.float32))[0].sum() == WEIGHT.sum() + 12


def test_files_in_folders_below_the_model(load: Callable[..., Any], folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "w").write_bytes(WEIGHT.tobytes())
    for location in ("data/w", "./data/w", "data//w"):
        np.testing.assert_array_equal(weight_of(load({"location": location})), WEIGHT)


def test_an_empty_tensor_of_an_empty_file(load: Callable[..., Any], folder: Path) -> None:
    (folder / "empty").write_bytes(b"")
    assert weight_of(load({"location": "empty"}, (0, 4))).shape == (0, 4)


def test_the_checksum_is_checked(load: Callable[..., Any], folder: Path) -> None:
    digest = hashlib.sha1((folder / NAME).read_bytes()).hexdigest()
    load({"location": NAME, "offset": "16", "checksum": digest})
    with pytest.raises(ModelError, match=r"tensor 'w': 'weights.bin' does not have the checksum"):
        load({"location": NAME, "offset": "16", "checksum": "0" * 40})


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "data/../../secret",
        "/etc/hostname",
        "\\\\host\\share",
        "C:\\secret",
        "C:secret",
        "..",
        "..\\secret",
        "a\\..\\..\\secret",
        "nul\0",
    ],
)
def test_locations_outside_the_folder(load: Callable[..., Any], location: str) -> None:
    with pytest.raises(
        ModelError, match=r"tensor 'w': external data .* (leaves the model's folder|is not a path relative)"
    ):
        load({"location": location})


@pytest.mark.parametrize("location", ["missing", "weights.bin/inside", "", ".", "./"])
def test_locations_of_nothing(load: Callable[..., Any], location: str) -> None:
    with pytest.raises(ModelError, match=r"tensor 'w': (there is no external data|external data)"):
        load({"location": location})


def test_a_folder_is_no_file(load: Callable[..., Any], folder: Path) -> None:
    (folder / "sub").mkdir()
    with pytest.raises(ModelError, match="tensor 'w': external data 'sub' is not a plain file"):
        load({"location": "sub"})


def test_a_pipe_is_no_file(load: Callable[..., Any], folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(ModelError, match="'pipe' is not a plain file"):
        load({"location": "pipe"})


def test_symbolic_links(load: Callable[..., Any], folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "inner").symlink_to(folder / NAME)
    (folder / "up").symlink_to(folder.parent, target_is_directory=True)
    for location in ("link", "inner", "up/secret", "up/model/weights.bin"):
        with pytest.raises(
            ModelError, match=f"tensor 'w': external data '{location}' is reached through a symbolic link"
        ):
            load({"location": location})


def test_hard_links(load: Callable[..., Any], folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "hard")
    with pytest.raises(ModelError, match="tensor 'w': external data 'hard' is a hard link"):
        load({"location": "hard"})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "40"}, r"bytes 40 to 88 lie outside 'weights.bin', which has 68"),
        ({"offset": "1152921504606846976"}, "lie outside"),
        ({"offset": "9" * 20}, "the offset '9+' of external data is no size"),
        ({"offset": "9" * 5000}, "is no size"),
        ({"offset": "-16"}, "the offset '-16' of external data is no size"),
        ({"offset": "0x10"}, "the offset '0x10' of external data is no size"),
        ({"offset": "1e3"}, "is no size"),
        ({"offset": " 16"}, "is no size"),
        ({"offset": ""}, "is no size"),
        ({"length": "48", "offset": "²"}, "is no size"),
        ({"length": "47"}, "its shape needs 48 bytes, its external data has the length 47"),
        ({"length": "0"}, "needs 48 bytes"),
        ({"length": "9223372036854775807"}, "is no size"),
        ({"length": "-1"}, "the length '-1' of external data is no size"),
        ({"basepath": "/etc"}, "unknown key 'basepath' of external data"),
        ({"": "x"}, "unknown key ''"),
    ],
)
def test_lies_about_offset_and_length(load: Callable[..., Any], entries: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=f"tensor 'w': .*{message}"):
        load({"location": NAME, **entries})


def test_a_shape_that_the_file_cannot_hold(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="lie outside"):
        load({"location": NAME}, (1 << 20, 1 << 20))


def test_keys_are_given_once(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="tensor 'w': external data has the key 'location' twice"):
        load([("location", NAME), ("location", "../secret")])
    with pytest.raises(ModelError, match="tensor 'w': external data has no location"):
        load({"offset": "0"})


def test_a_model_given_as_bytes_has_no_folder() -> None:
    made = external_model({"location": NAME})
    for source in (made, made.SerializeToString()):
        with pytest.raises(ModelError, match=r"data is in the file 'weights.bin', but the model was given as bytes"):
            load_model(source)


def test_external_and_inline_data_exclude_each_other(folder: Path) -> None:
    made = external_model({"location": NAME, "offset": "16"})
    made.graph.initializer[0].raw_data = WEIGHT.tobytes()
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ModelError, match="tensor 'w': has both external and raw data"):
        load_model(path)
    made.graph.initializer[0].ClearField("data_location")
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ModelError, match="names external data but is not marked as external"):
        load_model(path)


def test_strings_cannot_be_external(folder: Path) -> None:
    made = external_model({"location": NAME})
    made.graph.initializer[0].data_type = TensorProto.STRING
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ModelError, match="strings cannot be external data"):
        load_model(path)


def test_a_file_that_is_exchanged_while_it_is_opened(
    load: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def swapped(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).endswith(NAME):
            (folder / NAME).unlink()
            (folder / NAME).write_bytes(bytes(100))
        return real(path, flags, *rest, **named)

    kept = (folder / NAME).open("rb")  # the old file's number must not be used again
    monkeypatch.setattr(os, "open", swapped)
    with kept, pytest.raises(ModelError, match="was exchanged while it was opened"):
        load({"location": NAME})
