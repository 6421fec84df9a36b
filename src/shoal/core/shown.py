"""What people want of a result in a notebook: a table, a picture, and itself in HTML.

Only the doors are here; what is behind them needs tables and charts, which the core does not.
"""

from __future__ import annotations

from typing import Any

from shoal.core.registry import load


class Shown:
    """A result that shows itself as a table (`to_frame`), a chart (`plot`) and HTML."""

    __slots__ = ()

    def to_frame(self, library: str | None = None) -> Any:
        """A table of polars, or of "pandas" or "pyarrow" where asked for or where the data was."""
        return load("shoal.data.display:frame_of")(self, library)

    def plot(self, ax: Any = None) -> Any:
        """The matplotlib axes it is drawn on, new ones unless given; needs the `plot` extra."""
        return load("shoal.data.display:axes_of")(self, ax)

    def _repr_html_(self) -> str:
        return str(load("shoal.data.display:html_of")(self))
