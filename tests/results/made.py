"""Every file that is made of results/, in whole or between two marks: `files` gives what they should hold."""

from pathlib import Path

from experiments.runs import titles
from experiments.tables import command as tables
from experiments.tables import leaderboard, setups
from preload_jax.methods import PAPER
from tests.results import claims

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
START, END = "<!-- made of results/: python -m tests.results -->", "<!-- end of what is made -->"


def files():
    """By path the text of each file."""
    there = setups.read(RESULTS)
    (front,) = (setup for setup in there if "digits" in setup.results.datasets())
    parts = {
        "README.md": [claims.by_set(front, "digits", [titles.METHOD_TITLES[name] for name in PAPER])],
        "docs/leaderboard.md": [leaderboard.page(RESULTS)],
        "docs/results.md": [
            claims.sections(there),
            claims.study(
                [
                    *(RESULTS / "studies" / "preload_ft").glob("*.json"),
                    *(
                        RESULTS / "lenet_tiny_imagenet" / "fashion_mnist" / method / "seed0" / "results.json"
                        for method in ("standard", "preload_ft")
                    ),
                ]
            ),
            claims.detectors(there),
        ],
    }
    found = {ROOT / name: with_parts((ROOT / name).read_text(), texts) for name, texts in parts.items()}
    for setup in there:
        for dataset in setup.results.datasets():
            args = tables.Args(root=RESULTS / setup.name, dataset=dataset, format="markdown")
            found[RESULTS / "tables" / setup.name / f"{dataset}.md"] = tables.text(args)
    return found


def with_parts(text, parts):
    """A page with what is between its marks replaced, pair by pair."""
    before, *rest = text.split(START)
    assert len(rest) == len(parts), f"{len(rest)} pairs of marks, and {len(parts)} parts"
    made = [
        f"{START}\n\n{part.rstrip()}\n\n{END}{after.partition(END)[2]}" for part, after in zip(parts, rest, strict=True)
    ]
    return before + "".join(made)


def by_hand(text):
    """What of a page is not made."""
    before, *rest = text.split(START)
    return before + "".join(part.partition(END)[2] for part in rest)
