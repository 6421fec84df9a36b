"""The doors to the world: reading series of states, writing releases, and made-up data."""
