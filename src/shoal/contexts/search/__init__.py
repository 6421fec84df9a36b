"""Searches for the suppression that shows most within a promise."""
