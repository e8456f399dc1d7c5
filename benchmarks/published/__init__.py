"""Predicted memory against what others measured and published."""
