"""The `aicore` command. `main` is its entry point; `app` says how to add a subcommand."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 for a finding, 2 for an error that aicore explains."""
    from aicore.cli.app import run  # `import aicore.cli` stays free

    return run(arguments)
