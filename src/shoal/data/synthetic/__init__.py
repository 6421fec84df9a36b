"""Made-up data with the shape of the real thing: no row is about a real person."""
