"""What is carried into other documents: the page that was built, and the views as one module."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from shoal.core.errors import InputError

UNBUILT = (
    "the studio's page has not been built; run `make views` in a checkout, or install the wheel, "
    "which carries it"
)


def static_folder() -> Path:
    """Where the built page lies; refused, with the way out, where it was never built."""
    folder = Path(str(files("shoal.studio"))) / "static"
    if not (folder / "index.html").is_file():
        raise InputError(UNBUILT)
    return folder


def views_source() -> str:
    """The views as the text of one JavaScript module that may stand inside an HTML document."""
    text = (static_folder() / "views.js").read_text(encoding="utf-8")
    # an HTML parser ends a script at these letters wherever they stand; JavaScript reads \/ as /
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
