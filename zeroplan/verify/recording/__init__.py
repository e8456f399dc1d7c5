"""Recordings of transformers' modules on torch's meta device. Needs torch and transformers."""
