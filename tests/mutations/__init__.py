"""Seeded faults in code that promises rest on, and whether tests notice them."""
