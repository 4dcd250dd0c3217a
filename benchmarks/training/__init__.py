"""The parts of `benchmarks.cuda_training`: networks, sides, what a worker measures."""
