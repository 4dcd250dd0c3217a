"""Benchmarks. Each module measures one promise of the project and prints ratios; none is a test."""
