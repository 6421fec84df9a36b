"""Streams of places: maps, policies, location sets, and the machine that releases step by step."""
