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
# Of the others, whose dots are wider apart when colours begin again.
_OTHER_COLORS = (*_COLORS[:-1], YELLOW)
_DOTS = (":", (0, (1, 3)), (0, (1, 5)))
_MARKERS = (*"ox^sDvP*d<>hp8XH+1234|_.,", 4, 5, 6)


def _styles() -> dict[str, dict[str, Any]]:
    styles: dict[str, dict[str, Any]] = {}
    own = [name for name, row in METHODS.items() if not row.in_paper]
    for index, (name, row) in enumerate(METHODS.items()):
        colors, place = (_COLORS, index) if row.in_paper else (_OTHER_COLORS, own.index(name))
        style: dict[str, Any] = {"color": colors[place % len(colors)], "marker": _MARKERS[index % len(_MARKERS)]}
        solid, broken = ("-", "--") if row.in_paper else (_DOTS[place // len(colors) % len(_DOTS)], "-.")
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
