"""The parts of `benchmarks.cpu_vs_onnxruntime`: networks, both sides, paired timing, start-up, layers, tables."""
