"""Secrets that are patterns over time: events, their automata, and what a chain says of them."""
