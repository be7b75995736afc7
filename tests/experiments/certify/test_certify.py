"""Certificates of random classifiers, and the command on a small trained run."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.certify import detectors as by_detector
from experiments.certify import picture
from experiments.certify import table as certificate_table
from experiments.certify.certificate import as_dict, certify
from experiments.drawing.style import save
from preload_jax.devices import forward
from preload_jax.errors import UserError
from preload_jax.guarantees import far_away_limit, input_radius, ray_certificate
from tests.random_networks import HEADS, NUM_CLASSES, random_classifier

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("cat", "dog", "eel")


def certified(head, *, backbone="mlp", network=None, **options):
    model, variables, shape = random_classifier(backbone, head, **(network or {}))
    rng = np.random.default_rng(0)
    near = rng.integers(0, 256, (30, *shape), np.uint8)
    far = (1e4 * rng.uniform(size=(20, *shape))).astype(np.float32)
    options = {"num_directions": 400, **options}
    return certify(
        model,
        variables,
        num_classes=NUM_CLASSES,
        test_images=near,
        ood_images={"far": far},
        key=jax.random.key(0),
        **options,
    )


def test_a_square_logit_is_certified():
    found = certified("square_logit", confidence=0.4)
    assert (found.certain, found.ood, found.dead) == (0.0, 1.0, 0)
    assert found.smallest_slope > 0
    assert (found.bound.confidence < 1).all()
    assert found.profile.confidence.max() <= found.bound.confidence.max() + 1e-6
    assert found.norms["test"].size == 30
    assert found.norms["far"].beyond == 1.0
    # The promise, on the far images: beyond the radius, no more confident than that.
    assert found.radius.confidence == 0.4
    assert np.isfinite(found.radius.radius)
    values = json.loads(json.dumps(as_dict(found, class_names=NAMES), allow_nan=False))
    assert values["share_ending_in_extra_class"] == 1.0
    assert [row["name"] for row in values["largest_confidence"]["classes"]] == list(NAMES)
    for row in values["largest_confidence"]["classes"]:
        assert row["attained_log_odds"] <= row["largest_log_odds"] <= row["closed_form_log_odds"]
    assert values["profile"][-1]["distance"] == pytest.approx(1e30)
    assert values["profile"][-1]["confidence_max"] == 0.0


@pytest.mark.parametrize("head", ["linear", "none_class"])
def test_linear_heads_are_certified_to_reach_1(head):
    found = certified(head)
    assert found.certain + found.ood == 1.0
    assert found.certain > 0.3
    assert (found.ood > 0) == (head == "none_class")
    values = json.loads(json.dumps(as_dict(found, class_names=NAMES), allow_nan=False))
    assert values["safe_radius"]["radius"] is None
    assert [row["largest_confidence"] for row in values["largest_confidence"]["classes"]] == [1.0, 1.0, 1.0]
    assert values["embedding_norms"]["far"]["share_beyond_radius"] == 0.0
    assert values["profile"][-1]["confidence_max"] == 1.0


@pytest.mark.parametrize("head", HEADS)
def test_tables_and_figures(head):
    found = certified(head)
    text = certificate_table.table(found, class_names=NAMES, title="toy, seed 0", width=120)
    assert "random directions u, t → ∞" in text
    assert "at t = 1e+30" in text
    if head == "square_logit":
        assert re.search(r"probability of the extra class tends to 1\s+│\s+100\.00 %", text)
    assert ("Safe radius" in text) == ("eel" in text) == (head == "square_logit")
    assert ("1 in each of the 3 classes" in text) == (head != "square_logit")
    figure = picture.draw(found, class_names=NAMES, title="toy")
    assert len(figure.axes) == (3 if head == "square_logit" else 2)
    assert all(axis.get_xlabel() for axis in figure.axes)
    figure.canvas.draw()


def test_legends_are_below_the_labels_and_only_whole_decades_have_numbers():
    # Of few classes and sets the figure is low, and legends come no nearer.
    figure = picture.draw(certified("square_logit"), class_names=NAMES, title="toy")
    FigureCanvasAgg(figure).draw()
    legends = [(axis, legend) for axis in figure.axes if (legend := axis.get_legend())]
    assert len(legends) == 3
    for axis, legend in legends:
        label, below = axis.xaxis.label.get_window_extent(), legend.get_window_extent()
        assert below.y1 < label.y0
        assert below.y0 > 0
    low, high = figure.axes[1].get_xlim()
    ticks = [tick for tick in figure.axes[1].get_xticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert all(tick == round(tick) for tick in ticks)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["$5_to_$", "one $", "\udcff\udcfe", "a\nb", "e\x1b[31mred", "日本", "_under"])
def test_any_name_can_be_drawn(tmp_path, name):
    found = certified("square_logit")
    found = replace(found, norms={"test": found.norms["test"], name: found.norms["far"]})
    save(picture.draw(found, class_names=(name, "dog", "eel"), title=name), tmp_path / "figure.png")
    rows = {"msp": {"ood": 0.5}, "energy": {"ood": 1.0}}
    save(by_detector.draw(rows, title=name), tmp_path / "detectors.png")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.5, "0.5000"), (0.99999, "1 - 1e-05"), (3e-7, "3e-07"), (0.9999, "0.9999")],
)
def test_probabilities_show_their_distance_from_certainty(value, text):
    assert certificate_table.probability(value) == text


def test_shares_are_those_of_the_limits():
    model, variables, shape = random_classifier("mlp", "none_class")
    directions = np.asarray(jax.random.normal(jax.random.key(0), (400, *shape)))
    winner = far_away_limit(model, variables, directions).winner
    assert certified("none_class").ood == np.mean(winner == NUM_CLASSES)


def test_the_document_holds_the_numbers_of_each_class_and_set():
    model, variables, shape = random_classifier("mlp", "square_logit")
    found = certified("square_logit")
    directions = np.asarray(jax.random.normal(jax.random.key(0), (400, *shape)))
    assert found.smallest_slope == far_away_limit(model, variables, directions).slope_norm.min()
    values, bound = as_dict(found, class_names=NAMES), found.bound
    rng = np.random.default_rng(0)
    for name, images in (
        ("test", rng.integers(0, 256, (30, *shape), np.uint8)),
        ("far", (1e4 * rng.uniform(size=(20, *shape))).astype(np.float32)),
    ):
        _, features = forward.predict(model, variables, images, features=True)
        shown = [values["embedding_norms"][name][key] for key in ("q05", "median", "q95")]
        assert shown == pytest.approx(np.quantile(np.linalg.norm(features, axis=1), [0.05, 0.5, 0.95]), rel=1e-4)
    for key, numbers in (
        ("largest_log_odds", bound.log_odds),
        ("attained_log_odds", bound.attained_log_odds),
        ("closed_form_confidence", bound.closed_form),
        ("safe_radius", found.radius.class_radii),
    ):
        assert [row[key] for row in values["largest_confidence"]["classes"]] == pytest.approx(list(numbers))
    for key, numbers in (
        ("confidence_median", found.profile.confidence),
        ("extra_class_median", found.profile.ood_probability),
    ):
        assert [row[key] for row in values["profile"]] == pytest.approx([np.median(row) for row in numbers])


def test_whole_rays_are_those_of_the_library():
    found = certified("square_logit", num_rays=30)
    model, variables, shape = random_classifier("mlp", "square_logit")
    directions = np.asarray(jax.random.normal(jax.random.key(0), (400, *shape)))[:30]
    rays = ray_certificate(model, variables, directions)
    np.testing.assert_array_equal(found.rays.largest_log_odds, rays.largest_log_odds)
    values = as_dict(found, class_names=NAMES)["whole_rays"]
    assert values["largest_log_odds"] == rays.largest_log_odds.max()
    assert values["at_distance"] == rays.distance[rays.largest_log_odds.argmax()]
    assert (values["number"], values["last_crossing_max"]) == (30, rays.last_crossing.max())
    shown = certificate_table.table(found, class_names=NAMES, title="", width=100)
    assert "all t ≥ 0, exactly, along 30 of them" in shown
    # A profile sees the ray at some distances, never more than there is.
    assert found.profile.confidence[:, :30].max() <= rays.largest_confidence.max() + 1e-6


def test_progress_tells_how_far_the_rays_are():
    said = []
    found = certified("square_logit", num_rays=40, progress=lambda done, note="": said.append((done, note)))
    notes = [note for done, note in said if done == 2 and note]
    assert notes[-1] == f"40 of 40 rays to their end, {found.rays.num_pieces.sum():,} pieces"
    assert len(notes) > 1
    assert [done for done, note in said if not note][:3] == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"num_rays": 0}, "not computed, as asked"),
        (
            {"backbone": "lenet"},
            (
                "not computed: a ray through convolutions takes seconds, of colour photos minutes; --num-rays asks for"
                " some"
            ),
        ),
    ],
)
def test_rays_that_were_not_followed_say_why(options, why):
    found = certified("square_logit", num_directions=20, **options)
    assert (found.rays, found.no_rays) == (None, why)
    assert as_dict(found, class_names=NAMES)["whole_rays"] == {"number": 0, "why": why}
    shown = certificate_table.table(found, class_names=NAMES, title="", width=100)
    assert why in " ".join(shown.split())


def test_the_radius_in_input_space_of_a_network_with_the_distance():
    found = certified("square_logit", network={"distance": 1.0, "min_weight": 0.2}, num_rays=5)
    model, variables, shape = random_classifier("mlp", "square_logit", distance=1.0, min_weight=0.2)
    radius = input_radius(model, variables, 0.5)
    assert found.input_radius.radius == radius.radius
    images = np.random.default_rng(0).integers(0, 256, (30, *shape), np.uint8)
    assert found.norms["test"].beyond_input == radius.share_beyond(images / 255.0)
    assert found.norms["far"].beyond_input == 1.0
    values = as_dict(found, class_names=NAMES)
    assert values["input_radius"]["typical_distances"] == radius.relative
    # Norms are those of the embedding alone, without the distance beside it.
    _, features = forward.predict(model, variables, images, features=True)
    assert found.norms["test"].median == pytest.approx(np.median(np.linalg.norm(features[:, :-1], axis=1)), rel=1e-5)
    shown = certificate_table.table(found, class_names=NAMES, title="", width=120)
    assert f"Input radius: {radius.relative:.4g} typical distances" in shown
    assert certified("square_logit", num_rays=5).input_radius is None


def test_what_is_infinite_is_said_in_words():
    found = certified("square_logit", network={"distance": 1.0}, num_rays=5)
    found = replace(
        found,
        input_radius=replace(found.input_radius, radius=np.inf, relative=np.inf),
        rays=replace(found.rays, last_crossing=np.full(5, np.inf)),
    )
    shown = certificate_table.table(found, class_names=NAMES, title="", width=120)
    assert "Input radius: none" in shown
    assert re.search(r"t beyond which it stays ≤ 0.5 +│ +none │ +none ", shown)
    assert " inf " not in shown


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match="num_directions must be at least 1, got 0"):
        certified("linear", num_directions=0)
    with pytest.raises(UserError, match="confidence must lie between 0 and 1"):
        certified("linear", confidence=1.5)
    for num_rays in (-1, 401):
        with pytest.raises(UserError, match=f"num_rays must be between 0 and num_directions, 400, got {num_rays}"):
            certified("linear", num_rays=num_rays)


def command(module, *options):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    arguments = [sys.executable, "-m", f"experiments.{module}", *map(str, options)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment)


def test_the_command_on_a_run(tmp_path):
    run_dir = tmp_path / "run"
    trained = command("run", "--max-steps=20", f"--run-dir={run_dir}", "--quiet")
    assert trained.returncode == 0, trained.stderr
    result = command("certify", f"--run={run_dir}", "--num-directions=500", "--json")
    assert result.returncode == 0, result.stderr
    values = json.loads((run_dir / "certificate.json").read_text())
    assert json.loads(result.stdout) == values
    assert str(run_dir / "certificate.json") in result.stderr
    assert (values["dataset"], values["method"], values["num_directions"]) == ("digits", "preload", 500)
    assert values["share_with_limiting_confidence_1"] == 0.0
    assert values["embedding_norms"]["faraway"]["share_beyond_radius"] == 1.0
    assert (run_dir / "figures" / "certificate.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_a_run_is_one_line(tmp_path):
    result = command("certify", f"--run={tmp_path}")
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: no config.json in")
