"""Series that follow a Markov chain: models, fits, exact losses, lifts, quilts, audits."""
