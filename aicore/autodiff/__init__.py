"""Gradients as graphs: the backward pass is made of ordinary nodes, which passes and planner treat like any others."""

from aicore.autodiff.backward import backward
from aicore.autodiff.gradient import grad, gradients
from aicore.autodiff.recompute import Recompute

__all__ = ["Recompute", "backward", "grad", "gradients"]
