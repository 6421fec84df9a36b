"""Coins thrown apart: the smallest family there is, which a test adds as the sixth."""
