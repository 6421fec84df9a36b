"""The exact loss of noise on a sum over a chain, and the least scale for a budget."""
