"""What all pictures share: colours, line styles, saving.

Colours are Okabe and Ito's, which survive colour blindness.  In grey print, and where two colours are alike, the line's
style or the marker tells.
"""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from experiments.cli.visible import escaped, visible
from preload_jax.errors import reason
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


def literal(name: str) -> str:
    """A name of the user's as a picture's text that shows it as it is: no formula, and only signs that the font has.

    Matplotlib takes what is between two dollars as a formula, and leaves a label that begins with _ out of legends.
    """
    shown = visible(name)
    if not shown.isascii():
        glyphs = get_font(findfont(FontProperties())).get_charmap()
        shown = "".join(sign if ord(sign) in glyphs else escaped(sign) for sign in shown)
    return ("\u200b" if shown.startswith("_") else "") + shown.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG whole or not at all."""
    buffer = io.BytesIO()
    # No metadata: the same figure gives the same bytes.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def save_or_warn(draw: Callable[[], Figure], path: Path, *, warn: Callable[[str], None]) -> bool:
    """Draws and writes a picture that comes with results, and says whether it is there: they stay without it."""
    try:
        save(draw(), path)
    except Exception as error:  # Matplotlib's are of many kinds, and so are the disk's.
        with contextlib.suppress(OSError):
            path.unlink()  # An older one would be of other results.
        warn(f"{path} was left out ({reason(error)}); the results are complete without it")
        return False
    return True


def legend_below(figure: Figure, handles: Any, labels: Any, *, columns: int) -> None:
    """A legend outside all panels, so that it covers nothing."""
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=3.5
    )
