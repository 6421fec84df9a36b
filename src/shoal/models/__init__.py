"""Laws of the data: what an adversary may know."""
