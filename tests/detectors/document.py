"""What docs/detectors.md and docs/far_away.md have of `detectors.TABLE`: `python -m tests.detectors.document`."""

import inspect
import re
from importlib import import_module
from pathlib import Path

from preload_jax import detectors

DOCS = Path(__file__).parents[2] / "docs"
START, END = "<!-- made of detectors.TABLE: python -m tests.detectors.document -->", "<!-- end of what is made -->"
FAMILIES = {
    "Logits, probabilities and inputs": "rows_logits",
    "Features among the training features": "rows_features",
    "The head, gradients and feature maps": "rows_head",
}


def made():
    """The overview, and an entry for each detector."""
    anchors = _anchors()
    lines = ["| Name | Detector | Reference | Needs | Far away |", "|---|---|---|---|---|"]
    for name, row in detectors.TABLE.items():
        reference = f"[{row.reference}]({row.url})"
        needs = ", ".join(need.replace("_", " ") for need in row.needs)
        lines.append(f"| [`{name}`](#{anchors[name]}) | {row.title} | {reference} | {needs} | {row.far_away} |")
    lines += ["", "What the last column's words mean:", ""]
    lines += [f"- *{word}*: {meaning}." for word, meaning in detectors.FAR_AWAY.items()]
    return "\n".join([*lines, "", *_entries()])


def _entries():
    families = {name: title for title, module in FAMILIES.items() for name in _rows(module)}
    title = ""
    for name, row in detectors.TABLE.items():
        if families[name] != title:
            title = families[name]
            yield f"## {title}\n"
        yield f"### {row.title}\n"
        yield f"$$ {row.equation} $$\n"
        yield f"- `{name}`; {row.reference}. Needs {'; '.join(detectors.NEEDS[need] for need in row.needs)}."
        if row.options:
            options = ", ".join(f"`{option}={value!r}`" for option, value in row.options.items())
            yield f"- Options: {options}. Origin: {row.origin}."
        elif row.origin != "none":
            yield f"- Origin: {row.origin}."
        where = "computed on the host" if row.on_host else "one compiled function"
        yield f"- Price: {row.price}; {where}.\n"


def _anchors():
    """Name → the anchor of its heading, as GitHub and MyST make it of the title; a second one of a kind is numbered."""
    found, seen = {}, {}
    for name, row in detectors.TABLE.items():
        slug = re.sub(r"[^\w\- ]", "", row.title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        found[name] = f"{slug}-{seen[slug]}" if seen[slug] else slug
    return found


def _rows(module):
    return import_module(f"preload_jax.detectors.{module}").ROWS


def proofs():
    """The limit of each score, and why."""
    lines = ["| Detector | Far away | The limit, and why |", "|---|---|---|"]
    for row in detectors.TABLE.values():
        if row.far_away != "undecided":
            why = inspect.getdoc(import_module(f"preload_jax.detectors.{row.module}").limit)
            why = " ".join(why.split("Raises:")[0].split()).replace("|", "\\|")
            lines.append(f"| {row.title} | {row.far_away} | {why} |")
    return "\n".join(lines) + "\n"


def measured():
    """The share of directions called OOD, of each detector and network that `benchmarks.far_away` looked at."""
    columns, lowest = {}, 100.0
    for kind, title in {"mlp": "MLP", "lenet": "LeNet", "wide_resnet": "WideResNet"}.items():
        text = (DOCS.parent / "results" / "tables" / f"far_away_{kind}.md").read_text()
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
        for place, heading in enumerate(rows[0][1::2]):
            shares = {row[0]: row[1 + 2 * place].removesuffix(" %") for row in rows[2:]}
            columns[f"{title}, {heading.removesuffix(': OOD')}"] = shares
            agreements = [row[2 + 2 * place] for row in rows[2:]]
            lowest = min([lowest, *(float(cell.removesuffix(" %")) for cell in agreements if cell != "–")])
    names = [row.title for row in detectors.TABLE.values() if row.title in next(iter(columns.values()))]
    trained = {heading: shares for heading, shares in columns.items() if not heading.endswith("NC")}
    lines = [f"| Detector | {' | '.join(trained)} |", "|---" * (1 + len(trained)) + "|"]
    for name in names:
        cells = [shares[name] for shares in trained.values()]
        if set(cells) != {"–"}:
            lines.append(f"| {name} | {' | '.join(cells)} |")
    nc = {heading.split(",")[0]: shares["NC"] for heading, shares in columns.items() if heading.endswith("NC")}
    lines += [
        "",
        f"NC, whose OOD logit is linear, calls {', '.join(f'{share} % ({title})' for title, share in nc.items())} OOD.",
        "",
        f"In every cell the score at $t = 10^8$ gives the same verdict for at least {lowest:g} % of the directions.",
    ]
    return "\n".join(lines) + "\n"


def on_test_sets():
    """The table that `evaluate --detectors=all` printed of Fashion-MNIST, without seconds; what was left out below."""
    lines = (DOCS.parent / "results" / "tables" / "detectors_fashion_mnist.txt").read_text().splitlines()
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-2]] for line in lines if line[:1] in ("│", "┃")]
    text = [f"| {' | '.join(row)} |" for row in rows]
    left_out = [line.split(" was left out")[0] for line in lines if " was left out" in line]
    note = f"*: the best of its column. Left out, because the network lacks what they read: {', '.join(left_out)}."
    return "\n".join([text[0], "|---" * len(rows[0]) + "|", *text[1:], "", note]) + "\n"


def of_runs():
    """What `certify --detectors=all` said of four runs."""
    columns = {}
    for dataset, title in {"digits": "digits", "fashion_mnist": "Fashion-MNIST"}.items():
        for method, name in {"standard": "Standard", "preload": "PreLoad"}.items():
            text = (DOCS.parent / "results" / "tables" / f"far_away_{dataset}_{method}.txt").read_text()
            rows = [[cell.strip() for cell in line.split("│")] for line in text.splitlines() if line.startswith("│")]
            columns[f"{title}, {name}"] = {row[1]: row[2].removesuffix(" %") for row in rows}
    lines = [f"| Detector | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for row in detectors.TABLE.values():
        cells = [shares.get(row.title, "–") for shares in columns.values()]
        if set(cells) != {"–"}:
            lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


RUNS_START, RUNS_END = "<!-- made of results/tables/far_away_*_*.txt -->", "<!-- end of runs -->"
MEASURED_START, MEASURED_END = "<!-- made of results/tables/far_away_*.md -->", "<!-- end of what was measured -->"
# Page, then where something begins and ends, and what it is.
PARTS = [
    ("detectors.md", START, END, made),
    ("far_away.md", START, END, proofs),
    ("far_away.md", MEASURED_START, MEASURED_END, measured),
    ("far_away.md", RUNS_START, RUNS_END, of_runs),
    (
        "results.md",
        "<!-- made of results/tables/detectors_fashion_mnist.txt -->",
        "<!-- end of fashion_mnist -->",
        on_test_sets,
    ),
]
PAGES = sorted({page for page, *_ in PARTS})


def with_table(page):
    """The page's text as it is, and with what is made put in its place."""
    text = (DOCS / page).read_text()
    found = text
    for name, start, end, part in PARTS:
        if name == page:
            before, _, rest = found.partition(start)
            found = f"{before}{start}\n\n{part()}\n{end}{rest.partition(end)[2]}"
    return text, found


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(with_table(name)[1])
