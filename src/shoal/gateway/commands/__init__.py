"""`shoal serve`, `shoal keys`, and a made-up town to try the service with."""
