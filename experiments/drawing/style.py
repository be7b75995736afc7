"""What all pictures share: colours, line styles, saving.

Colours are Okabe and Ito's, which survive colour blindness.  In grey print, and where two colours are alike, the line's
style or the marker tells.
"""

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from preload_jax.formats.files import write_bytes
from preload_jax.methods import METHODS

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW, BLACK, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#000000", "#767676"
IN_DOMAIN, OOD, ACCENT = BLUE, VERMILION, GREEN

# Of methods in the order of `methods.METHODS`; a fine-tuned line is dashed, those with the square logit are thick, and
# those that the paper does not have are dotted.
_COLORS = (BLACK, GREY, ORANGE, SKY, VERMILION, BLUE, GREEN, PURPLE, VERMILION)
_MARKERS = ("o", "x", "^", "s", "D", "v", "P", "*", "d", "<", ">", "h", "p", "8", "X")


def _styles() -> dict[str, dict[str, Any]]:
    styles: dict[str, dict[str, Any]] = {}
    for index, (name, row) in enumerate(METHODS.items()):
        style: dict[str, Any] = {"color": _COLORS[index % len(_COLORS)], "marker": _MARKERS[index % len(_MARKERS)]}
        solid, broken = ("-", "--") if row.in_paper else (":", "-.")
        style |= {"linestyle": broken if row.fine_tunes else solid}
        styles[name] = style | ({"linewidth": 2.4} if row.head == "square_logit" else {})
    return styles


# Every method has a colour, a line style and a marker of its own.
METHOD_STYLES = _styles()


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG whole or not at all."""
    buffer = io.BytesIO()
    # No metadata: the same figure gives the same bytes.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def legend_below(figure: Figure, handles: Any, labels: Any, *, columns: int) -> None:
    """A legend outside all panels, so that it covers nothing."""
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=3.5
    )
