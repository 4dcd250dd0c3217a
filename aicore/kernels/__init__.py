"""Kernels, their registry, and the choice among them."""

from aicore.kernels.family import KernelFamily, load_kernels
from aicore.kernels.kernel import REFERENCE, Kernel, Settings, kernel
from aicore.kernels.registry import KernelTable
from aicore.kernels.selector import Candidate, Choose, Selection, Selector

__all__ = [
    "REFERENCE",
    "Candidate",
    "Choose",
    "Kernel",
    "KernelFamily",
    "KernelTable",
    "Selection",
    "Selector",
    "Settings",
    "kernel",
    "load_kernels",
]
