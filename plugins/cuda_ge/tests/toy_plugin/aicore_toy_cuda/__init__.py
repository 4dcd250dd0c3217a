"""A plugin that brings an op and a CUDA kernel for it, and no device."""
