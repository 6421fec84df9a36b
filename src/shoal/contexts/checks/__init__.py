"""The checks for context streams, as rows of the table of mechanisms."""
