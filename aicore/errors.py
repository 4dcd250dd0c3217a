"""One error root. Every message names what failed (node, value, file, plugin), and the cure when that is known."""

from __future__ import annotations

from collections.abc import Iterable


class AicoreError(Exception):
    """Root of every error that aicore raises on purpose."""


class GraphError(AicoreError):
    """A graph breaks a structural rule: an undefined operand, a value defined twice, a cycle, a bad text."""


class InferenceError(GraphError):
    """The operands of a node contradict its op: ranks, dtypes, dimensions, attributes out of range."""


class RuleError(AicoreError):
    """A rewrite rule or pattern is malformed; raised where it is defined, never while matching."""


class ModelError(AicoreError):
    """A model file is damaged, unsafe, or breaks its format's rules."""


class UnsupportedError(AicoreError):
    """Well-formed, but nothing installed can do it: an unknown op, dtype or attribute value, or a missing kernel."""


class InputError(AicoreError):
    """What the caller passed to a program does not fit its inputs: missing, extra, wrong dtype, wrong shape."""


class PluginError(AicoreError):
    """A plugin is broken, conflicts with another, or cannot be used; says which, why, and what fixes it."""


class ConfigError(AicoreError):
    """An AICORE_* variable or an option has a value that is not among its choices."""


class ExecutionError(AicoreError):
    """A kernel failed while a program ran; names kernel, node and shapes."""


class OutOfMemoryError(ExecutionError):
    """A run or a program needs more memory than is left; smaller ones run afterwards as before."""


class TrainingError(AicoreError):
    """Training cannot go on, such as when the loss is no number any more."""


class TuningError(AicoreError):
    """Measured times cannot be kept, or a file of them cannot be used."""


def meant(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'threads'?`, the end of a message about an unknown name; empty where none is close to it."""
    import difflib  # names are rarely wrong

    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


_LONGEST = 2000
"""Characters of an error's text that a message keeps."""


def error_text(error: BaseException) -> str:
    """`ValueError: what it says`, cut to 2000 characters; of an error whose text cannot be read, that it cannot."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  # the error may be a plugin's, and so is its text
        text = f"its text cannot be read, which raises {type(failure).__name__}"
    return f"{type(error).__name__}: {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}"
