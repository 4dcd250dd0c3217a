"""Kernels of this plugin for the device `cpu`."""

from aicore_int8_quant.kernels import linear, lookup, weight_only

KERNELS = (*linear.KERNELS, *lookup.KERNELS, *weight_only.KERNELS)
