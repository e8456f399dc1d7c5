"""Measures this machine, for a node's file that `--cluster` reads; torch is imported where it is needed.

What needs a GPU is written and was run on none yet.
"""
