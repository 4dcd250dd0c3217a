"""The CUDA backend of aicore."""
