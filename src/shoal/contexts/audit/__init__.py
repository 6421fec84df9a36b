"""The rise of belief a context stream allows, by code of its own."""
