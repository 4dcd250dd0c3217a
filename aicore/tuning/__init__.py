"""Kernels chosen by measurement: what was measured, where it is kept, and how it is done."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(  # a process that only looks up times needs none of what measures them
    __name__,
    {
        "Chooser": "aicore.tuning.chooser",
        "Interval": "aicore.tuning.contest",
        "Measure": "aicore.tuning.tuner",
        "Outcome": "aicore.tuning.tuner",
        "Problem": "aicore.tuning.tuner",
        "Record": "aicore.tuning.records",
        "RecordError": "aicore.tuning.records",
        "Row": "aicore.tuning.store",
        "Tuner": "aicore.tuning.tuner",
        "TuningStore": "aicore.tuning.store",
        "export_records": "aicore.tuning.exchange",
        "import_records": "aicore.tuning.exchange",
        "median_interval": "aicore.tuning.contest",
    },
)
