"""What a run's own log says, beside what was predicted for it."""
