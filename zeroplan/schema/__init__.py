"""What `--json` holds, as dataclasses: each object once, each field with its meaning and unit.

Bytes are integers, times are seconds. Numbers of a GPU are per GPU, those of host and NVMe per node. A key that does
not apply is left out where its field has a default of None, and null where it has none.
"""
