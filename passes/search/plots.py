"""PNG charts without a display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError


@contextmanager
def chart(path: Path, panels: int = 1) -> Iterator[list[Any]]:
    """Axes of a figure with panels side by side, which is written at the end.

    Raises:
        AtlasError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AtlasError("a plot needs matplotlib", remedy="pip install matplotlib") from error
    figure = Figure(figsize=(6 * panels, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, panels, index + 1) for index in range(panels)]
    for panel in axes:
        panel.grid(visible=True, alpha=0.3)
    yield axes
    figure.savefig(path, dpi=150, format="png")
