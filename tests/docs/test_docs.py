"""The Python of README.md and docs/ runs, file by file and top to bottom, and their links lead somewhere.

A block below the comment `<!-- no-run: reason -->` is skipped. Functions called `test_…` without parameters are run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "plugins").glob("*/README.md"))]

FENCE = re.compile(r"^```(\w*)\s*$")
NO_RUN = re.compile(r"^<!--\s*no-run:(?P<reason>.*)-->\s*$")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
RUN_TESTS = """
for _name, _test in list(globals().items()):
    if _name.startswith("test_"):
        _test()
"""


def script_of(markdown: str) -> str:
    """The file with everything but its Python blanked out, so that line numbers stay those of the page.

    Raises ValueError for a block that is skipped without a reason, and for a fence that is not closed.
    """
    lines: list[str] = []
    language: str | None = None
    skip = False
    for line in markdown.splitlines():
        fence = FENCE.match(line)
        kept = ""
        if language is not None:
            if line.strip() == "```":
                language, skip = None, False
            elif language == "python" and not skip:
                kept = line
        elif fence:
            language = fence[1]
        elif no_run := NO_RUN.match(line):
            if not no_run["reason"].strip():
                raise ValueError(f"line {len(lines) + 1}: a block may be skipped only for a reason")
            skip = True
        elif line.strip():
            skip = False
        lines.append(kept)
    if language is not None:
        raise ValueError("a code block is not closed")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    script = script_of(page.read_text(encoding="utf-8"))
    if not script.strip():
        return
    # A process of its own: a page may define ops, and they would stay in this one. A file, because what hashes a
    # kernel's source has to find the text.
    path = tmp_path / f"{page.stem.replace('-', '_').lower()}_page.py"
    path.write_text(script + "\n" + RUN_TESTS, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{page.relative_to(ROOT)} does not run:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_links_lead_somewhere(text: Path) -> None:
    targets = LINK.findall(text.read_text(encoding="utf-8"))
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (text.parent / target).exists()] == []


def test_script_of_keeps_line_numbers_and_skips() -> None:
    page = "a\n```python\nx = 1\n```\n<!-- no-run: needs a file -->\n\n```python\ny = 2\n```\n```bash\nls\n```\n"
    assert script_of(page).split("\n") == ["", "", "x = 1", *[""] * 9]


@pytest.mark.parametrize("page", ["<!-- no-run: -->\n```python\n```", "```python\nx = 1"])
def test_script_of_refuses(page: str) -> None:
    with pytest.raises(ValueError, match=r"reason|closed"):
        script_of(page)
