"""Made-up data with the shape of the real thing: no row of it is anybody's."""
