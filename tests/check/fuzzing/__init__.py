"""Inputs drawn for `zeroplan check` by seed, and what must hold of each: `benchmarks/fuzz_check.py` runs a million."""
