"""How much of a result a screen has."""

QUIET, BRIEF, TABLES, EVERYTHING = range(4)
"""The answer alone (-q), what a person reads to decide, all tables (-v), and each of their lines (-vv)."""
