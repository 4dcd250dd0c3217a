"""Strict parsing of the environment: what is not understood is an error that lists the choices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aicore.config import Config, cache_folder, child_environment, from_environment, parse_bool, parse_fallback
from aicore.errors import AicoreError, ConfigError


def test_nothing_set_means_the_defaults() -> None:
    assert from_environment({}) == Config()
    assert from_environment({"HOME": "/root", "PATH": ""}) == Config()


def test_empty_values_mean_the_defaults() -> None:
    names = (
        "PLUGINS",
        "DISABLE_PLUGINS",
        "PLUGIN_TIMEOUT",
        "TARGET",
        "FALLBACK",
        "CACHE_DIR",
        "THREADS",
        "TUNE",
        "GRAPHS",
        "NVTX",
        "DEBUG",
    )
    assert from_environment({f"AICORE_{name}": " " for name in names}) == Config()


def test_every_variable_is_read() -> None:
    config = from_environment(
        {
            "AICORE_PLUGINS": "cpu_numpy, fake_gpu",
            "AICORE_DISABLE_PLUGINS": "cuda_ge,",
            "AICORE_PLUGIN_TIMEOUT": "2.5",
            "AICORE_TARGET": " cpu ",
            "AICORE_FALLBACK": "error",
            "AICORE_CACHE_DIR": "caches",
            "AICORE_THREADS": "3",
            "AICORE_TUNE": "off",
            "AICORE_GRAPHS": "5",
            "AICORE_NVTX": "on",
            "AICORE_DEBUG": "Yes",
        }
    )
    assert config == Config(
        plugins=frozenset({"cpu_numpy", "fake_gpu"}),
        disabled_plugins=frozenset({"cuda_ge"}),
        plugin_timeout=2.5,
        target="cpu",
        fallback="error",
        cache_dir=Path("caches"),
        threads=3,
        tune="off",
        graphs=5,
        nvtx=True,
        debug=True,
    )


def test_an_unknown_variable_names_itself_and_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"AICORE_TARGETS; known are .*AICORE_TARGET\b"):
        from_environment({"AICORE_TARGETS": "cpu"})


@pytest.mark.parametrize("text", ["2", "maybe", "tru", "yes please"])
def test_a_bad_boolean_names_the_variable_and_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match=r"AICORE_DEBUG=.* choose from .*false.*true"):
        from_environment({"AICORE_DEBUG": text})


@pytest.mark.parametrize("text", ["1", "true", "TRUE", " yes ", "On"])
def test_true(text: str) -> None:
    assert parse_bool(text, "x") is True


@pytest.mark.parametrize("text", ["", "0", "false", "No", " off "])
def test_false(text: str) -> None:
    assert parse_bool(text, "x") is False


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1 s"])
def test_a_bad_number_of_seconds_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match=r"AICORE_PLUGIN_TIMEOUT=.* choose 0 or a positive number"):
        from_environment({"AICORE_PLUGIN_TIMEOUT": text})


def test_a_child_process_rehearses_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_PLUGIN_TIMEOUT", "7")
    monkeypatch.setenv("AICORE_TARGET", "cpu")
    assert child_environment() == {**os.environ, "AICORE_PLUGIN_TIMEOUT": "0"}


@pytest.mark.parametrize("text", ["Error", "silent", "none"])
def test_a_bad_fallback_lists_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match="choose from error, warn, quiet"):
        from_environment({"AICORE_FALLBACK": text})


@pytest.mark.parametrize("policy", ["error", "warn", "quiet"])
def test_fallback_policies(policy: str) -> None:
    assert parse_fallback(policy) == policy


def test_config_errors_are_aicore_errors() -> None:
    assert issubclass(ConfigError, AicoreError)


def test_a_bad_variable_never_breaks_the_import() -> None:
    code = "import aicore, aicore.config"
    environment = {**os.environ, "AICORE_DEBUG": "maybe", "AICORE_NONSENSE": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9" * 30, "²"])
def test_a_bad_number_of_threads_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match=r"AICORE_THREADS=.* is no number of threads; choose 1 or more"):
        from_environment({"AICORE_THREADS": text})


def test_a_bad_number_of_graphs_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="AICORE_GRAPHS='0' is no number of graphs; choose 1 or more"):
        from_environment({"AICORE_GRAPHS": "0"})


def test_a_bad_policy_of_tuning_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match="AICORE_TUNE='always' is not a policy; choose from off, cached, measure"):
        from_environment({"AICORE_TUNE": "always"})


@pytest.mark.parametrize("named", ["", "  ", "caches"])
def test_the_folder_of_caches_is_that_of_the_platform(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from platformdirs import user_cache_path

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / named) if named.strip() else named)
    assert cache_folder(Config()) == user_cache_path("aicore", appauthor=False)
    assert cache_folder(Config(cache_dir=tmp_path)) == tmp_path
