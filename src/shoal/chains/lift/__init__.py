"""What an entry-level DP release tells about one entry of a chain."""
