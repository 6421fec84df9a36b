"""Convex bodies on integer lattices: hulls, norms, moments, decided on integers."""
