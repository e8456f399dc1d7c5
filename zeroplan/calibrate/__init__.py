"""Measures this machine, for a node's file that `--cluster` reads; torch is imported where it is needed.

What needs one GPU was run on an H100; collectives, which need several, on none yet.
"""
