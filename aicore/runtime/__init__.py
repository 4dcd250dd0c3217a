"""Devices, plans, and what runs them."""

from aicore.runtime.backend import Backend
from aicore.runtime.constants import Constants
from aicore.runtime.control_flow import is_control_flow
from aicore.runtime.device import HOST, Device, SharesMemory, type_of
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore.runtime.executable import BindsArrays, BoundRun, Executable
from aicore.runtime.explanation import Explanation, KernelChoice
from aicore.runtime.memory import bytes_of, check_room
from aicore.runtime.plan import BufferPlan, Memory, OutputPlan, Plan, Step, Storage
from aicore.runtime.planner import MemoryOptions, make_plan, only_renames
from aicore.runtime.schedule import Placement
from aicore.runtime.specialise import (
    CacheStatistics,
    Options,
    Profile,
    ProfileRow,
    Specialised,
    Specialiser,
)
from aicore.runtime.threads import thread_count, usable_cores, using_threads

__all__ = [
    "HOST",
    "Backend",
    "BindsArrays",
    "BoundRun",
    "BufferPlan",
    "CacheStatistics",
    "Constants",
    "Device",
    "Executable",
    "Explanation",
    "KernelChoice",
    "Memory",
    "MemoryOptions",
    "Options",
    "OutputPlan",
    "Placement",
    "Plan",
    "Profile",
    "ProfileRow",
    "ReferenceEvaluator",
    "SharesMemory",
    "Specialised",
    "Specialiser",
    "Step",
    "Storage",
    "bytes_of",
    "check_room",
    "is_control_flow",
    "make_plan",
    "only_renames",
    "thread_count",
    "type_of",
    "usable_cores",
    "using_threads",
]
