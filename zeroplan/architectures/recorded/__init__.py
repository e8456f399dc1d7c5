"""Models whose modules were recorded as transformers runs them: programs of operators, replayed on sizes."""
