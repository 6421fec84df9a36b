"""What a release about a chain really leaks, by code the mechanisms do not share."""
