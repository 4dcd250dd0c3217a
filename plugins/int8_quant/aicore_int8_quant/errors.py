"""What can go wrong while a model is quantised."""

from __future__ import annotations

from aicore.errors import AicoreError


class QuantizationError(AicoreError):
    """A model, a tensor or an option does not fit quantisation; names it, and says what to do when that is known."""


class CalibrationError(QuantizationError):
    """What was observed cannot give a range: nothing at all, NaN or infinity, another number of channels."""
