"""What all pictures share: colours, line styles, saving.

Colours are Okabe and Ito's, which survive colour blindness.  In grey print, and where two colours are alike, the line's
style or the marker tells.
"""

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.runs import folder as runs

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW, BLACK, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#000000", "#767676"
IN_DOMAIN, OOD, ACCENT = BLUE, VERMILION, GREEN

# Every method has a colour, a line style and a marker of its own; ours are the thick ones.
METHOD_STYLES: dict[str, dict[str, Any]] = {
    "standard": {"color": BLACK, "linestyle": "-", "marker": "o"},
    "ddu": {"color": GREY, "linestyle": "-", "marker": "x"},
    "nc": {"color": ORANGE, "linestyle": "-", "marker": "^"},
    "oe": {"color": SKY, "linestyle": "-", "marker": "s"},
    "preload": {"color": VERMILION, "linestyle": "-", "marker": "D", "linewidth": 2.4},
    "oe_ft": {"color": BLUE, "linestyle": "--", "marker": "v"},
    "doe_ft": {"color": GREEN, "linestyle": "--", "marker": "P"},
    "energy_ft": {"color": PURPLE, "linestyle": "--", "marker": "*"},
    "preload_ft": {"color": VERMILION, "linestyle": "--", "marker": "d", "linewidth": 2.4},
}


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG whole or not at all."""
    buffer = io.BytesIO()
    # No metadata: the same figure gives the same bytes.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    runs.write_bytes(path, buffer.getvalue())


def legend_below(figure: Figure, handles: Any, labels: Any, *, columns: int) -> None:
    """A legend outside all panels, so that it covers nothing."""
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=3.5
    )
