"""What commands come to, as objects: numbers as attributes, the screen as text, `--json` as a dictionary."""
