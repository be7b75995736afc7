"""The table of detectors in docs/detectors.md, made of `detectors.TABLE`: `python -m tests.detectors.document`."""

import re
from pathlib import Path

from preload_jax import detectors

DOCUMENT = Path(__file__).parents[2] / "docs" / "detectors.md"
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
        where = "in float64 or piece by piece on the host" if row.on_host else "one compiled function"
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
    from importlib import import_module

    return import_module(f"preload_jax.detectors.{module}").ROWS


def with_table(text):
    """The document with what is made put in its place."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{made()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
