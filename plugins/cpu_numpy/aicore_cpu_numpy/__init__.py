"""The CPU backend of aicore, in NumPy: reference kernels, fast variants and the launcher of the device `cpu`."""
