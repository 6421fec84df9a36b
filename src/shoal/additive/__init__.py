"""Mechanisms that need only a model's numbers, and the choice among all of them."""
