"""Markov quilts, mixing times and influences on a chain."""
