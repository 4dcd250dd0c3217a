"""Installed distributions as this project reads them: as importlib-metadata does, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from aicore.plugins import discovery
from aicore.plugins.discovery import PLUGINS, find_distribution, installed
from aicore.plugins.distributions import Entry, OddError, PlainDistribution, normalized, plain_distributions
from aicore.plugins.fingerprint import listed_files

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"


@pytest.fixture
def add(tmp_path: Path) -> Callable[..., Path]:
    """Install a distribution, by its folder and the content of its files."""

    def install(folder: str, **files: str | bytes) -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True)
        for name, content in {"METADATA": METADATA.format(name=folder.partition("-")[0]), **files}.items():
            data = content if isinstance(content, bytes) else content.encode()
            (place / name.replace("entry_points", "entry_points.txt")).write_bytes(data)
        return place

    return install


def found(*folders: Path) -> dict[str, PlainDistribution]:
    return plain_distributions(map(str, folders))


def test_this_environment_is_read_as_importlib_metadata_reads_it() -> None:
    plain, thorough = discovery._plain_scan(), discovery._thorough_scan()
    assert [(i.entry[:3], i[1:]) for i in plain.found] == [(i.entry[:3], i[1:]) for i in thorough.found]
    assert plain.found
    for one, other in zip(plain.found, thorough.found, strict=True):
        assert listed_files(one) == listed_files(other)
        assert (one.entry.module, one.entry.attr) == (other.entry.module, other.entry.attr)
    assert set(plain_distributions(sys.path)) == {d._normalized_name for d in importlib_metadata.distributions()}


def test_names_and_places(add: Callable[..., Path], tmp_path: Path) -> None:
    dist_info, egg_info = add("One.Two_three-1.5.dist-info"), add("four-1.5-py3.11.egg-info")
    (tmp_path / "five").mkdir()
    assert {name: one.place for name, one in found(tmp_path).items()} == {
        "one_two_three": str(dist_info),
        "four": str(egg_info),
    }
    assert normalized("One.Two-_three") == "one_two_three"


def test_the_first_on_the_path_wins(add: Callable[..., Path], tmp_path: Path) -> None:
    first, _ = add("a/one-1.dist-info"), add("b/one-2.dist-info")
    assert found(tmp_path / "a", tmp_path / "b", tmp_path / "none")["one"].place == str(first)


def test_entry_points(add: Callable[..., Path]) -> None:
    text = "lost = before.any:group\n\n[a.b]\n# a remark\n x = p.q : r.s [extra]\r\ny=p\n[ c ]\nz = p.q\n"
    place = add("one-1.dist-info", entry_points=text)
    entries = PlainDistribution(str(place)).entry_points
    thorough = importlib_metadata.Distribution.at(place).entry_points
    assert [e[:3] for e in entries] == [(e.name, e.value, e.group) for e in thorough]
    assert [(e.module, e.attr) for e in entries] == [("p.q", "r.s"), ("p", ""), ("p.q", "")]
    assert PlainDistribution(str(add("none-1.dist-info"))).entry_points == []


def test_an_entry_is_loaded() -> None:
    assert Entry("n", "pathlib:Path.cwd", "g").load() == Path.cwd
    assert Entry("n", "pathlib", "g").load() is sys.modules["pathlib"]
    with pytest.raises(ModuleNotFoundError):
        Entry("n", "no_such_module", "g").load()
    for part in ("module", "attr"):
        with pytest.raises(OddError, match="'not a module!' refers to no object"):
            getattr(Entry("n", "not a module!", "g"), part)
    with pytest.raises(OddError):
        Entry("n", "a:", "g").load()


@pytest.mark.parametrize("text", ["[a]\nfoo\n", b"\xff\xfe\x00"])
def test_entry_points_that_are_none(add: Callable[..., Path], text: str | bytes) -> None:
    place = add("one-1.dist-info", entry_points=text)
    with pytest.raises(OddError):
        _ = PlainDistribution(str(place)).entry_points


def test_archives_are_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "one.zip").write_bytes(b"PK")
    with pytest.raises(OddError, match=r"one\.zip is no folder"):
        found(tmp_path / "one.zip")
    with pytest.raises(OddError, match="is an egg"):
        found(tmp_path / "one.EGG")


def test_what_may_stand_in_a_path(tmp_path: Path) -> None:
    assert plain_distributions([str(tmp_path / "none"), "a\0b"]) == {}
    with pytest.raises(OddError, match="is no text"):
        plain_distributions([tmp_path])  # type: ignore[list-item]


def test_a_folder_that_cannot_be_read_gets_a_closer_look(environment: Any) -> None:
    environment.install("good", "")
    loop = environment.folder / "loop-1.dist-info"
    loop.symlink_to(loop)  # neither absent nor readable
    with pytest.raises(OSError, match="loop"):
        discovery._plain_scan()
    assert "good" in {item.entry.name for item in installed(PLUGINS)}


def test_finders_of_other_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Finder:
        find_distributions = find_spec = staticmethod(lambda *_: None)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    with pytest.raises(OddError, match="another tool finds distributions"):
        found(tmp_path)


RECORDS = ["", "one.py,sha256=x,3\none/two.py,,\n", '"a,b.py",,\none.py,,\n']


@pytest.mark.parametrize("record", RECORDS)
def test_listed_files(add: Callable[..., Path], record: str, tmp_path: Path) -> None:
    place = add("one-1.dist-info", RECORD=record)
    for name in ("one.py", "a,b.py", "one/two.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    thorough = importlib_metadata.Distribution.at(place).files or ()
    assert PlainDistribution(str(place)).files() == [str(file.locate()) for file in thorough]


def test_a_distribution_without_a_list(add: Callable[..., Path]) -> None:
    assert PlainDistribution(str(add("one-1.dist-info"))).files() == []


def test_line_ends_of_another_system(add: Callable[..., Path]) -> None:
    place = add("one-1.dist-info", METADATA=b"Name: one\r\nVersion: 2\r\n\r\nName: no header\r\n")
    assert discovery.read_headers(PlainDistribution(str(place))) == {"name": ["one"], "version": ["2"]}


@pytest.mark.parametrize("odd", [False, True])
def test_a_distribution_by_name(environment: Any, odd: bool) -> None:
    environment.install("good", "", distribution="dist-good")
    if odd:
        environment.add_dist_info("ruin", METADATA.format(name="ruin"), "[console_scripts]\nfoo\n")
    one = find_distribution("Dist.Good")
    assert one is not None
    assert discovery.read_headers(one)["version"] == ["1.5"]
    assert find_distribution("no-such-distribution") is None
    assert "good" in {item.entry.name for item in installed(PLUGINS)}
    assert isinstance(one, PlainDistribution) is not odd
