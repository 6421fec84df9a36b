"""Handlers, thin: they read a request, call the store once, and write the answer."""
