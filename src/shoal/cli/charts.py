"""PNG charts; they need the `plot` extra (matplotlib)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError
from shoal.core.plan import Plan, Release
from shoal.mechanisms.table import standing

if TYPE_CHECKING:
    from shoal.cli.plan import RowComparison

CHOSEN, OTHER, ALARM = "#1b7f8c", "#b7c4cc", "#c8553d"


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_charts() -> None:
    """Refuse a chart when matplotlib is missing."""
    if not available():
        raise InputError(
            "--plot needs matplotlib, which is not installed; "
            "install it with `pip install 'shoal[plot]'`, or leave --plot out"
        )


def noise_chart(comparison: RowComparison) -> bytes:
    """Return a PNG of the noise of every mechanism that applies, the chosen one in colour."""
    figure = _figure(8, 4)
    _draw_noise(figure.subplots(), comparison)
    return _png(figure)


def _draw_noise(axes: Any, comparison: RowComparison) -> None:
    """Draw one bar per mechanism, the least noise on top."""
    from shoal.cli.plan import mean_error

    plans = [p for p in comparison.alternatives.values() if isinstance(p, Plan)]
    errors = {p.mechanism: mean_error(p) or 0.0 for p in plans}
    drawn = sorted((p for p in plans if errors[p.mechanism]), key=lambda p: -errors[p.mechanism])
    chosen = comparison.plan.mechanism
    colours = [CHOSEN if p.mechanism == chosen else OTHER for p in drawn]
    names = [f"{p.mechanism}\n{standing(p)}" for p in drawn]
    bars = axes.barh(names, [errors[p.mechanism] for p in drawn], color=colours)
    axes.bar_label(bars, fmt="%.4g", padding=3)
    axes.set_xscale("log")  # the noise of group privacy would leave no room for the others
    axes.set_xlabel(f"mean error of a value, {comparison.plan.task.query.unit} (logarithmic)")
    axes.set_title(f"Noise that gives epsilon = {float(comparison.epsilon):g}")
    _hide_frame(axes)


def leak_chart(names: Sequence[str], losses: Sequence[float], eta: float, **words: str) -> bytes:
    """Return a PNG of promised and real leak per model; an infinite leak fills the axis."""
    figure = _figure(8, 1.5 + 0.6 * (len(names) + 1))
    draw_leak(figure.subplots(), names, losses, eta, **words)
    return _png(figure)


def draw_leak(
    axes: Any,
    names: Sequence[str],
    losses: Sequence[float],
    eta: float,
    *,
    label: str = "epsilon: the most the log-odds between two values of an entry can change",
    title: str = "What an ordinary private release really guarantees",
) -> None:
    """Draw the promised epsilon on top, then one bar per bound."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    full = 1.25 * max([eta, *finite])
    values = [eta, *(min(loss, full) for loss in losses)]
    labels = [f"{eta:.4g}", *(f"{loss:.4g}" if math.isfinite(loss) else "∞" for loss in losses)]
    bars = axes.barh(["promised", *names], values, color=[OTHER] + [ALARM] * len(names))
    axes.bar_label(bars, labels=labels, padding=3)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_title(title)
    _hide_frame(axes)


def tour_chart(
    comparison: RowComparison, loss: float, release: Release, truth: Sequence[float], *, eta: float
) -> bytes:
    """Return a PNG with the three pictures of the demo: the leak, the noise, the histogram."""
    figure = _figure(9, 11)
    leak, noise, histogram = figure.subplots(3, 1, height_ratios=(1, 2, 2))
    draw_leak(leak, ["proved"], [loss], eta)
    _draw_noise(noise, comparison)
    bound = 0.0 if release.error is None else release.error.bound
    draw_histograms(histogram, release.answer.labels, truth, release.values, bound)
    histogram.set_ylabel(release.answer.unit)
    histogram.set_title("The true and the released histogram")
    return _png(figure)


def draw_histograms(
    axes: Any, labels: Sequence[str], truth: Sequence[float], noisy: Sequence[float], bound: float
) -> None:
    """Draw true and released values side by side, the released ones with error bars."""
    places = range(len(labels))
    axes.bar([p - 0.2 for p in places], truth, width=0.4, color=OTHER, label="true")
    axes.bar(
        [p + 0.2 for p in places],
        noisy,
        width=0.4,
        yerr=bound,
        color=CHOSEN,
        ecolor="#555555",
        capsize=3,
        label="released (with its 95 % error)",
    )
    axes.set_xticks(list(places), labels)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.legend(frameon=False)
    _hide_frame(axes)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.15))


def _png(figure: Any, dpi: int = 150) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _hide_frame(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
