"""Predicted beside measured: runs real DeepSpeed as one rank of N, without GPUs, and records what it holds and moves.

torch, deepspeed and transformers are imported in the child process only (`python -m zeroplan.verify.child`).
"""
