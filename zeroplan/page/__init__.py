"""A plan as a page to pass around: its charts, its tables, a grid to try other settings on; whole or in pieces."""
