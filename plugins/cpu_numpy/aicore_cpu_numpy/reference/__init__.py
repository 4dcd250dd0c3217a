"""What each op means: plain kernels, a module per op family, that every other kernel is judged by."""
