"""The rows for context streams, one file a check."""
