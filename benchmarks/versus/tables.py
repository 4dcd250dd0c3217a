"""The figures as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.versus.worker import AICORE


def show(console: Console, figures: Mapping[str, Any]) -> None:
    """All tables of a run."""
    networks = figures["networks"]
    console.print(_speed_table(networks))
    if "summary" in figures:
        console.print(summary_text(figures["summary"]))
    for text in _remarks(networks):
        console.print(text)
    if any("start_up" in one for one in networks):
        console.print(_start_up_table(networks))
    for one in networks:
        if one.get("layers"):
            console.print(_layer_table(one))


def summary_text(summary: Mapping[str, Any]) -> str:
    """One line: the geometric mean, and the slowest network."""
    spinning, without = summary["geometric_mean_spinning"], summary["geometric_mean_without_spinning"]
    return (
        f"geometric mean {summary['geometric_mean']:.2f} of onnxruntime's speed at its better setting"
        f" (spinning {spinning:.2f}, without {without:.2f}),"
        f" worst {summary['worst']:.2f} ({summary['worst_network']})"
    )


def _speed_table(networks: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("Speed (1.00 = as fast as onnxruntime, more is faster)", "network")
    titles = ("aicore ms", "onnxruntime ms", "ratio", "95% interval", "spinning", "without")
    for title in (*titles, "rounds", "load", "difference"):
        table.add_column(title, justify="right")
    for one in networks:
        if "error" in one:
            table.add_row(one["network"], "[red]failed[/red]")
            continue
        seconds, ratio = one["seconds"], one["ratio"]
        table.add_row(
            one["network"],
            f"{seconds[AICORE] * 1e3:.2f}",
            f"{seconds[one['better']] * 1e3:.2f}",
            f"{ratio['median']:.2f}",
            f"{ratio['low']:.2f} .. {ratio['high']:.2f}",
            *(f"{one[form]['median']:.2f}" for form in ("ratio_spinning", "ratio_without_spinning")),
            str(one["rounds"]),
            str(one["load"]),
            f"{one['difference']['relative']:.1e}",
        )
    return table


def _remarks(networks: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for one in networks:
        if "evaluator" in one:
            yield f"{one['network']}: {one['evaluator']['ratio']:.0f} times as fast as the onnx package's evaluator"


def _start_up_table(networks: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("Fresh processes (ratio: aicore over onnxruntime, less is better)", "network")
    titles = ("import + load + first run ms", "onnxruntime's", "load + first run", "with import", "warm")
    for title in (*titles, "peak MB", "onnxruntime's", "peak"):
        table.add_column(title, justify="right")
    for one in (one for one in networks if "start_up" in one):
        ours, theirs = one["start_up"]["aicore"], one["start_up"]["onnxruntime"]
        table.add_row(
            one["network"],
            *(" + ".join(f"{side[name] * 1e3:.0f}" for name in _START_UP) for side in (ours, theirs)),
            *(f"{one['start_up']['ratios'][name]:.2f}" for name in ("load_and_first_run", "with_import", "warm")),
            *(f"{side['peak_bytes'] / 1e6:.0f}" for side in (ours, theirs)),
            f"{one['start_up']['ratios']['peak']:.2f}",
        )
    return table


_START_UP = ("imports_s", "load_s", "first_run_s")


def _layer_table(one: Mapping[str, Any]) -> Table:
    table = _table(f"{one['network']}: heaviest layers, worst ratio first", "layer")
    table.columns[0].overflow = "fold"
    for title in ("kernel", "x", "ms", "onnxruntime ms", "aicore", "onnxruntime", "ratio", "lost ms"):
        table.add_column(title, justify="left" if title == "kernel" else "right")
    for row in one["layers"]:
        theirs = row["theirs"]
        table.add_row(
            f"{row['op']} on {row['operands']}",
            row["kernel"],
            str(row["count"]),
            f"{row['seconds'] * 1e3:.3f}",
            f"{theirs * 1e3:.3f}" if theirs else row["reason"][:40],
            row["rates"]["ours"],
            row["rates"]["theirs"] or "",
            f"{row['ratio']:.2f}" if theirs else "",
            f"{row['lost_seconds'] * 1e3:+.2f}",
        )
    return table


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column(first)
    return table
