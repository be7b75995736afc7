"""The rooms of the code and the imports between them, read from the files.

python -m tests.rooms             how many rooms and imports there are, and what each room imports
python -m tests.rooms --write     draws them into docs/assets/rooms.svg, which docs/architecture.md shows
"""

import ast
import sys
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "rooms.svg"
PACKAGES = ("preload_jax", "experiments")

# A room may import rooms of lower floors alone; the lowest floor is the first.
FLOORS = {
    "preload_jax": [
        ["errors"],
        ["integers"],
        ["checks", "log_sum_exp", "rows", "short_repr"],
        ["methods", "own_numbers", "backbones", "digests", "losses", "scores", "metrics", "attacks"],
        ["data", "models", "devices", "decisions"],
        ["adapters", "formats", "detectors", "bayes"],
        ["training", "evaluation", "guarantees"],
        ["api", "recalibration"],
    ],
    "experiments": [
        ["cli"],
        ["runs"],
        ["drawing"],
        ["evaluate", "certify", "tables", "prepare_data"],
        ["run", "predict", "export", "figures"],
        ["paper", "tune", "watch"],
    ],
}


@cache
def files(package: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / package).rglob("*.py")))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str | None:
    """ "package.room" of a module; None for a package itself, and for modules of others."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in PACKAGES and len(parts) > 1 else None


def imports(source: str) -> list[str]:
    """Every module or name that a file's text imports, at its top or inside a function."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def rooms(package: str) -> list[str]:
    """The rooms there are, from the lowest floor to the highest."""
    there = {found for path in files(package) if (found := room(module_name(path)))}
    return [f"{package}.{name}" for floor in FLOORS[package] for name in floor if f"{package}.{name}" in there]


def edges(package: str) -> dict[str, set[str]]:
    """Room → the other rooms of its package that it imports."""
    found: dict[str, set[str]] = {name: set() for name in rooms(package)}
    for path in files(package):
        own = room(module_name(path))
        if own is None:
            continue
        others = {other for name in imports(path.read_text()) if (other := room(name)) and other != own}
        found.setdefault(own, set()).update(other for other in others if other.startswith(f"{package}."))
    return found


def floor(name: str) -> int | None:
    """The floor that a room is on."""
    package, short = name.split(".")
    return next((i for i, names in enumerate(FLOORS[package]) if short in names), None)


WIDTH, ROW, BOX, GAP = 900, 80, 30, 44
# Every room may import these, so arrows to them would say nothing.
GROUND = ("preload_jax.errors", "experiments.cli")


def svg() -> str:
    """Both packages, highest floor at the top; an arrow from a room to each room that it imports."""
    order = [(package, i) for package in reversed(PACKAGES) for i in reversed(range(len(FLOORS[package])))]
    there = {name for package in PACKAGES for name in rooms(package)}
    places: dict[str, tuple[float, float, float]] = {}
    for row, (package, i) in enumerate(order):
        names = [name for short in FLOORS[package][i] if (name := f"{package}.{short}") in there]
        widths = [12 + 8.2 * len(name.split(".")[1]) for name in names]
        x = (WIDTH - sum(widths) - GAP * (len(names) - 1)) / 2
        for name, width in zip(names, widths, strict=True):
            places[name] = (x, 30 + row * ROW, width)
            x += width + GAP
    height = 30 + len(order) * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        ' font-family="sans-serif" font-size="14">',
        "<title>The rooms of preload_jax and experiments, and which imports which</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for package in PACKAGES:
        for name, used in sorted(edges(package).items()):
            for other in sorted(used - set(GROUND)):
                (x0, y0, w0), (x1, y1, w1) = places[name], places[other]
                lines.append(
                    f'<line x1="{x0 + w0 / 2:.0f}" y1="{y0 + BOX:.0f}" x2="{x1 + w1 / 2:.0f}" y2="{y1:.0f}"'
                    ' stroke="#9aa7b8" stroke-width="1"/>'
                )
    for name, (x, y, width) in places.items():
        fill = "#dbe8f8" if name.startswith("preload_jax") else "#f8e9d3"
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="5" fill="{fill}" stroke="#555"/>'
        )
        lines.append(
            f'<text x="{x + width / 2:.0f}" y="{y + 20:.0f}" text-anchor="middle">{escape(name.split(".")[1])}</text>'
        )
    top = 30 + ROW * len(FLOORS["experiments"]) - ROW / 4
    lines.append(
        f'<line x1="0" y1="{top - 6:.0f}" x2="{WIDTH}" y2="{top - 6:.0f}" stroke="#555" stroke-dasharray="6 5"/>'
    )
    lines.append('<text x="8" y="20" fill="#555">experiments</text>')
    lines.append(f'<text x="8" y="{top + 12:.0f}" fill="#555">preload_jax</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    if "--write" in sys.argv:
        PICTURE.write_text(svg())
        print(f"wrote {PICTURE.relative_to(ROOT)}")
        return
    for package in PACKAGES:
        found = edges(package)
        print(f"{package}: {len(found)} rooms, {sum(map(len, found.values()))} imports between them")
        for name in rooms(package):
            used = ", ".join(sorted(other.split(".")[1] for other in found[name])) or "nothing"
            print(f"  {name.split('.')[1]}: {used}")


if __name__ == "__main__":
    main()
