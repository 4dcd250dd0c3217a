"""The parts of `benchmarks.cuda_vs_torch` and `benchmarks.cuda_kernels`: networks, sides, timing in turns, tables."""
