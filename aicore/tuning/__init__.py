"""Kernels chosen by measurement: what was measured, where it is kept, and how it is done."""

from aicore.tuning.chooser import Chooser
from aicore.tuning.contest import Interval, median_interval
from aicore.tuning.exchange import export_records, import_records
from aicore.tuning.records import Record, RecordError
from aicore.tuning.store import Row, TuningStore
from aicore.tuning.tuner import Measure, Outcome, Problem, Tuner

__all__ = [
    "Chooser",
    "Interval",
    "Measure",
    "Outcome",
    "Problem",
    "Record",
    "RecordError",
    "Row",
    "Tuner",
    "TuningStore",
    "export_records",
    "import_records",
    "median_interval",
]
