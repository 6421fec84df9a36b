"""Compiled parts of a step of places; importing them imports numba."""
