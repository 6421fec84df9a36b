"""The command line. `app` holds the table of commands; each command is a module of its own."""

from shoal.cli.app import app, main

__all__ = ["app", "main"]
