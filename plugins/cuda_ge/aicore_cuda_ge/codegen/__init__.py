"""CUDA source of pointwise kernels: made from ops, compiled by NVRTC when a plan is bound."""
