"""Ops of this plugin: int8 products and convolutions with what follows them, and products with int8 weights."""

from aicore_int8_quant.ops.linear import Int8Conv, Int8Linear, Int8MatMul
from aicore_int8_quant.ops.lookup import Int8Lookup
from aicore_int8_quant.ops.weight_only import WeightOnlyMatMul

OPS = (Int8Conv, Int8MatMul, Int8Lookup, WeightOnlyMatMul)

__all__ = ["OPS", "Int8Conv", "Int8Linear", "Int8Lookup", "Int8MatMul", "WeightOnlyMatMul"]
