"""What is made of results/ is what the files say, what is not made has no measured number, and sentences are right."""

import json
import re

import pytest

from experiments.runs import paper_numbers
from experiments.tables import setups
from preload_jax.data.specs import DATASETS
from tests.experiments.results_for_tests import results, write
from tests.results import claims, made


def test_every_page_and_table_is_what_the_files_say():
    wrong = [str(path.relative_to(made.ROOT)) for path, text in made.files().items() if path.read_text() != text]
    assert wrong == [], "run `python -m tests.results`"


def test_no_table_is_left_of_results_that_are_gone():
    assert set((made.RESULTS / "tables").glob("*/*.md")) <= made.files().keys()


# A percentage, a number beside another, a number with its error.
_MEASURED = re.compile(r"\d ?%|\bagainst \d|\d / \d|\d ?± ?\d")


@pytest.mark.parametrize("page", ["results.md", "leaderboard.md"])
def test_a_measured_number_is_made_or_said_to_have_no_file(page):
    text = made.by_hand((made.ROOT / "docs" / page).read_text())
    text = re.sub(r"<!-- made of results/tables/.*?<!-- end of", "", text, flags=re.DOTALL)
    assert _MEASURED.findall(text.partition("## Measured once")[0]) == []


def test_parts_go_between_their_marks():
    page = f"a\n{made.START}\nold\n{made.END}\nb\n{made.START}\n{made.END}\nc"
    once = made.with_parts(page, ["one", "two\n"])
    assert once == made.with_parts(once, ["one", "two\n"])
    assert once.split() == f"a {made.START} one {made.END} b {made.START} two {made.END} c".split()
    assert made.by_hand(once).split() == ["a", "b", "c"]


def section(root, dataset):
    (setup,) = setups.read(root)
    return claims.section(setup, dataset)


def test_sentences_with_known_numbers(tmp_path):
    for seed, shift in enumerate((-0.01, 0.01)):
        write(tmp_path, results("mnist", "standard", seed, accuracy=0.99 + shift / 2, ood={"faraway": 0.99 + shift}))
        write(tmp_path, results("mnist", "nc", seed, accuracy=0.97, ood={"faraway": 0.0}))
        write(tmp_path, results("mnist", "oe", seed, accuracy=0.981, ood={"faraway": 0.3}))
    text = section(tmp_path, "mnist")
    # Standard's 100.0±0.0 in the paper, NC's 0.0±0.0, OE's 56.6±19.6.
    assert "| Standard | **99.0±0.5₂** / 99.5 | 99.0±1.0₂ / 100.0±0.0 |" in text
    assert (
        "On FarAway, no image passes with NC. Of the others OE lets the fewest pass on its worse set: 30.0 %." in text
    )
    assert "Standard has 99.0±0.5 %. Over 1 point less: NC (97.0±0.0 %)." in text
    assert "2 of 3 FPR-95 are within 1 point" in text
    assert "1 differ by more than the combined error." in text
    assert "- OE on FarAway: 30.0±0.0 against 56.6±19.6." in text
    assert text.count("\n- ") == 1


def test_one_seed_is_never_called_different(tmp_path):
    write(tmp_path, results("mnist", "standard", ood={"faraway": 0.1}))
    text = section(tmp_path, "mnist")
    assert "Each of ours is of one seed and has no error, so none can be called different." in text
    assert "Standard on FarAway: 10.0 against 100.0±0.0." in text


def test_the_papers_own_numbers_are_near_the_papers(tmp_path):
    sets = {name: paper_numbers.ood("fpr95", "cifar10", name, "oe").mean for name in DATASETS["cifar10"].ood_sets}
    write(tmp_path, results("cifar10", "oe", ood=sets))
    text = section(tmp_path, "cifar10")
    assert f"{len(sets)} of {len(sets)} FPR-95 are within" in text
    assert "points away" not in text


def test_results_that_are_dropped_into_a_new_set_up_have_a_section(tmp_path):
    write(tmp_path / "a", results("mnist", "nc", accuracy=0.9))
    write(tmp_path / "b", results("mnist", "nc", accuracy=0.8))
    (tmp_path / "b" / "setup.toml").write_text('title = "Another network"\nnote = "Trained in a day."')
    text = claims.sections(setups.read(tmp_path))
    assert "## MNIST: a\n" in text
    assert "## MNIST: Another network\n\nTrained in a day.\n" in text
    assert ("90.0₁" in text, "80.0₁" in text) == (True, True)


def test_a_study_says_what_was_changed(tmp_path):
    known = {"validation": {"accuracy": 0.875}, "not_as_recipe": ["outliers photo (random_images_300k)"]}
    changed = {**known, "not_as_recipe": [*known["not_as_recipe"], "optimizer.learning_rate 0.001 (0.006)"]}
    files = {
        "b": results("mnist", "preload_ft", accuracy=0.5, ood={"uniform": 0.25}, **changed),
        "c": results("mnist", "preload_ft", ood={"uniform": 0.5, "smooth": 0.5}, **known),
        "a": results("mnist", "standard", ood={"uniform": 1.0}, **known),
    }
    for name, values in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    assert claims.study(tmp_path.glob("*.json")).splitlines() == [
        "| MNIST | accuracy, validation ↑ | accuracy, test ↑ | Uniform ↓ |",
        "|---|--:|--:|--:|",
        "| Standard, the paper recipe's numbers | 87.5 | 90.0 | 100.0 |",
        "| PreLoad-FT, learning rate 0.001 | 87.5 | 50.0 | 25.0 |",
        "| PreLoad-FT, the paper recipe's numbers | 87.5 | 90.0 | 50.0 |",
    ]
