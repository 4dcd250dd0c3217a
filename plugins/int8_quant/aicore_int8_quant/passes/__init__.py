"""The passes of a quantisation, in order, and those that put quantised models on int8 kernels."""
