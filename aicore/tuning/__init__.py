"""Kernels chosen by measurement: what was measured, where it is kept, and how it is done."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore.tuning.chooser import Chooser
    from aicore.tuning.contest import Interval, median_interval
    from aicore.tuning.exchange import export_records, import_records
    from aicore.tuning.graphs import GraphRecords, considered_passes, fingerprint
    from aicore.tuning.paired import Comparison, compare_runs, comparison, median_sequence
    from aicore.tuning.races import Raced, Racer
    from aicore.tuning.records import Record, RecordError
    from aicore.tuning.store import Row, TuningStore
    from aicore.tuning.tuner import Measure, Outcome, Problem, Tuner

__all__ = [
    "Chooser",
    "Comparison",
    "GraphRecords",
    "Interval",
    "Measure",
    "Outcome",
    "Problem",
    "Raced",
    "Racer",
    "Record",
    "RecordError",
    "Row",
    "Tuner",
    "TuningStore",
    "compare_runs",
    "comparison",
    "considered_passes",
    "export_records",
    "fingerprint",
    "import_records",
    "median_interval",
    "median_sequence",
]

__getattr__ = lazy_names(  # a process that only looks up times needs none of what measures them
    __name__,
    {
        "Chooser": "aicore.tuning.chooser",
        "Comparison": "aicore.tuning.paired",
        "GraphRecords": "aicore.tuning.graphs",
        "Interval": "aicore.tuning.contest",
        "Measure": "aicore.tuning.tuner",
        "Outcome": "aicore.tuning.tuner",
        "Problem": "aicore.tuning.tuner",
        "Raced": "aicore.tuning.races",
        "Racer": "aicore.tuning.races",
        "Record": "aicore.tuning.records",
        "RecordError": "aicore.tuning.records",
        "Row": "aicore.tuning.store",
        "Tuner": "aicore.tuning.tuner",
        "TuningStore": "aicore.tuning.store",
        "compare_runs": "aicore.tuning.paired",
        "comparison": "aicore.tuning.paired",
        "considered_passes": "aicore.tuning.graphs",
        "export_records": "aicore.tuning.exchange",
        "fingerprint": "aicore.tuning.graphs",
        "import_records": "aicore.tuning.exchange",
        "median_interval": "aicore.tuning.contest",
        "median_sequence": "aicore.tuning.paired",
    },
)
