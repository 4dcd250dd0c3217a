"""Kernels of this plugin for the device `cpu`."""

from aicore_int8_quant.kernels import last_convolution, linear, lookup, weight_only

KERNELS = (*linear.KERNELS, *last_convolution.KERNELS, *lookup.KERNELS, *weight_only.KERNELS)
