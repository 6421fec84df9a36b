"""The facts to hide, and the pairs to keep indistinguishable."""
