"""Devices, plans, and what runs them."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names
from aicore.runtime.backend import Backend
from aicore.runtime.constants import Constants
from aicore.runtime.control_flow import is_control_flow
from aicore.runtime.device import HOST, Device, SharesMemory, type_of
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore.runtime.executable import (
    BindsArrays,
    BoundRun,
    ClocksApart,
    Executable,
    RunsFromHost,
    StepTime,
    TimesSteps,
)
from aicore.runtime.explanation import Explanation, KernelChoice
from aicore.runtime.memory import bytes_of, check_room
from aicore.runtime.plan import BufferPlan, Memory, OutputPlan, Plan, Step, Storage
from aicore.runtime.planner import MemoryOptions, make_plan, only_renames
from aicore.runtime.schedule import Placement
from aicore.runtime.specialise import CacheStatistics, Options, Specialiser
from aicore.runtime.specialised import Specialised, Version
from aicore.runtime.step_times import ProfileRow, op_label, step_times
from aicore.runtime.threads import thread_count, usable_cores, using_threads

if TYPE_CHECKING:
    from aicore.runtime.ceilings import Ceilings, DeclaresCeilings, ceilings_of
    from aicore.runtime.memory_view import Lifetime, MemoryTimeline, MemoryView
    from aicore.runtime.profile import Place, Profile, RunTimes

__all__ = [
    "HOST",
    "Backend",
    "BindsArrays",
    "BoundRun",
    "BufferPlan",
    "CacheStatistics",
    "Ceilings",
    "ClocksApart",
    "Constants",
    "DeclaresCeilings",
    "Device",
    "Executable",
    "Explanation",
    "KernelChoice",
    "Lifetime",
    "Memory",
    "MemoryOptions",
    "MemoryTimeline",
    "MemoryView",
    "Options",
    "OutputPlan",
    "Place",
    "Placement",
    "Plan",
    "Profile",
    "ProfileRow",
    "ReferenceEvaluator",
    "RunTimes",
    "RunsFromHost",
    "SharesMemory",
    "Specialised",
    "Specialiser",
    "Step",
    "StepTime",
    "Storage",
    "TimesSteps",
    "Version",
    "bytes_of",
    "ceilings_of",
    "check_room",
    "is_control_flow",
    "make_plan",
    "only_renames",
    "op_label",
    "step_times",
    "thread_count",
    "type_of",
    "usable_cores",
    "using_threads",
]

__getattr__ = lazy_names(  # views, which running needs none of
    __name__,
    {
        "Ceilings": "aicore.runtime.ceilings",
        "DeclaresCeilings": "aicore.runtime.ceilings",
        "Lifetime": "aicore.runtime.memory_view",
        "MemoryTimeline": "aicore.runtime.memory_view",
        "MemoryView": "aicore.runtime.memory_view",
        "Place": "aicore.runtime.profile",
        "Profile": "aicore.runtime.profile",
        "RunTimes": "aicore.runtime.profile",
        "ceilings_of": "aicore.runtime.ceilings",
    },
)
