"""Installed distributions whose metadata is damaged: each is named and left out, and hides no other."""

from __future__ import annotations

import logging
import os
from typing import Any

import importlib_metadata
import pytest

from aicore.plugins import State, discovery
from aicore.plugins.discovery import PLUGINS, installed, ruins
from aicore.plugins.doctor import examine
from aicore.plugins.surroundings import examine_surroundings

METADATA = "Metadata-Version: 2.1\nName: ruin\nVersion: 1.5\n"
ENTRY = "[aicore.plugins]\nruin = ruin_package.plugin\n"


@pytest.fixture
def site(environment: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """An environment with a healthy plugin, to which distributions are confined too."""
    caplog.set_level(logging.WARNING)
    real = importlib_metadata.distributions

    def distributions(**context: Any) -> Any:
        return real(**{"path": [str(environment.folder)], **context})

    monkeypatch.setattr(importlib_metadata, "distributions", distributions)
    environment.install_device("good", "npu")
    return environment


def add_ruin(site: Any, **files: bytes) -> str:
    """A damaged distribution; the folder of its metadata."""
    site.add_dist_info("ruin", METADATA, ENTRY)
    folder = site.folder / "ruin-1.5.dist-info"
    for name, content in files.items():
        (folder / name.replace("entry_points", "entry_points.txt")).write_bytes(content)
    return str(folder)


RUINS = {
    "a line without =": {"entry_points": b"[aicore.plugins]\nfoo\n"},
    "a line without a module": {"entry_points": b"[aicore.plugins]\nruin = \n"},
    "a line without an attribute": {"entry_points": b"[aicore.plugins]\nruin = a:\n"},
    "a module that no module can be": {"entry_points": b"[aicore.plugins]\nruin = this is not valid!!\n"},
    "a line of a command": {"entry_points": b"[console_scripts]\nfoo\n"},
    "bytes for entry points": {"entry_points": b"\xff\xfe\x00[aicore.plugins]\n\xff = \xff"},
    "bytes for metadata": {"METADATA": b"\xff\xfe\x00bad"},
}


@pytest.mark.parametrize("damage", RUINS)
def test_a_ruin_is_named_and_hides_no_other(site: Any, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = add_ruin(site, **RUINS[damage])
    assert [item.entry.name for item in installed(PLUGINS)] == ["good"]
    assert [ruin.place for ruin in ruins()] == [folder]
    (message,) = caplog.messages
    assert message.startswith(f"the distribution in {folder} is left out, since its metadata cannot be read: ")
    assert message.endswith(f"fix: pip install --force-reinstall ruin, or remove {folder}")
    assert site.registry().device("npu").name == "npu"


@pytest.mark.parametrize("damage", RUINS)
def test_the_doctor_names_a_ruin(site: Any, damage: str) -> None:
    folder = add_ruin(site, **RUINS[damage])
    examination = examine(site.rehearsing())
    assert [(one.record.name, one.status) for one in examination.plugins] == [("good", "ok")]
    (problem,) = examination.problems
    assert (problem.finding, examination.status) == ("broken metadata", "failed")
    assert problem.reason.startswith(f"{folder} cannot be read: ")
    assert problem.fix == f"pip install --force-reinstall ruin, or remove {folder}"


def test_a_foreign_distribution_whose_entry_points_are_broken(site: Any) -> None:
    site.add_dist_info("aicore", METADATA.replace("ruin", "aicore"), "[console_scripts]\nnonsense\n")
    problems = examine_surroundings()
    assert [problem.finding for problem in problems] == ["broken metadata"]


def test_a_hidden_distribution_whose_entry_points_are_broken(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_dist_info("aicore", METADATA.replace("ruin", "aicore"), "[console_scripts]\nnonsense\n")
    monkeypatch.setattr(importlib_metadata, "entry_points", lambda: importlib_metadata.EntryPoints())
    assert [problem.finding for problem in examine_surroundings()] == ["broken metadata"]


def test_the_first_of_two_distributions_of_one_name_counts(site: Any) -> None:
    add_ruin(site, **RUINS["a line of a command"])
    site.add_dist_info("dist_good_again", METADATA.replace("ruin", "Dist.good"), "[aicore.plugins]\ngood = other\n")
    assert len(installed(PLUGINS)) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe,,\n\x00", b"x" * 300_000 + b",,\n", b'"unterminated,,\n' * 3])
def test_a_list_of_files_that_cannot_be_read_is_named_and_stops_nothing(site: Any, content: bytes) -> None:
    (site.folder / "dist_good-1.5.dist-info" / "RECORD").write_bytes(content)
    assert site.registry(site.rehearsing()).plugin("good").state is State.ACTIVE
    problems = examine_surroundings()
    if problems:  # some parsers take some of it
        assert [(problem.finding, problem.fix) for problem in problems] == [
            ("broken metadata", "pip install --force-reinstall dist-good")
        ]
        assert problems[0].reason.startswith("the list of files of dist-good 1.5 cannot be read: ")


def test_bytes_for_a_list_of_files_are_named(site: Any) -> None:
    (site.folder / "dist_good-1.5.dist-info" / "RECORD").write_bytes(b"\xff\xfe,,\n")
    assert [problem.finding for problem in examine_surroundings()] == ["broken metadata"]


def test_listed_names_that_no_file_can_have(site: Any) -> None:
    (site.folder / "dist_good-1.5.dist-info" / "RECORD").write_text("../../../../dev/zero,,\n,,\na,b,c,d,e\n")
    assert site.registry(site.rehearsing()).plugin("good").state is State.ACTIVE


def test_a_requirement_that_cannot_be_read_is_part_of_the_fingerprint(site: Any) -> None:
    from aicore.plugins.fingerprint import fingerprint

    site.install_device("needy", "tpu", requires="aicore>=0.1\nRequires-Dist: some-driver")
    site.add_dist_info("some-driver", "Name: some-driver\nVersion: 1.5\n", "")
    metadata = site.folder / "some_driver-1.5.dist-info" / "METADATA"
    metadata.write_bytes(b"\xff\xfe")
    item = next(item for item in installed(PLUGINS) if item.entry.name == "needy")
    assert fingerprint(item)["requirements"] == "some-driver unreadable"


def test_ten_thousand_entry_points_are_found(site: Any) -> None:
    lines = "".join(f"p{i} = dist_good_package.plugin\n" for i in range(10_000))
    site.add_dist_info("many", METADATA.replace("ruin", "many"), f"[aicore.plugins]\n{lines}")
    discovery._scan.cache_clear()
    records = site.registry().records
    assert len(records) == 10_001
    assert {record.state for record in records} == {State.COMPATIBLE}
    assert os.listdir(site.folder)
