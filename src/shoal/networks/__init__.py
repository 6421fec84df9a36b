"""Joint tables, Bayesian networks and contagion: laws of named variables."""
