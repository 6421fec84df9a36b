"""Searches for the suppression that releases most within a promise."""
