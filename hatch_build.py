"""Build the page of the studio and the gateway into a wheel, where it is missing and npm is there.

Run by hatchling. A checkout has no built page (`make views` makes it); without npm the wheel is
built all the same, with a warning, and the page is then missing.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
BUILD = ("npm", "run", "build", "--silent")


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Make `src/shoal/studio/static` before the files of a wheel are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page, unless it is there or the install is editable."""
        root = Path(self.root)
        views = root / "views"
        built = root / "src" / "shoal" / "studio" / "static" / "views.js"
        if version == "editable" or built.is_file() or not views.is_dir():
            return
        if shutil.which("npm") is None:
            self.app.display_warning("npm is not there: this wheel has no page (`make views`)")
            return
        for command in (INSTALL, BUILD):
            done = subprocess.run(command, cwd=views, check=False)
            if done.returncode:
                self.app.display_warning("the page could not be built: this wheel has none")
                return
