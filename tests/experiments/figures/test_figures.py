"""Figures render, are not blank, and show what they say; wrong input."""

import json

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from experiments.drawing import calibration, rays, scores, style
from experiments.figures import command, toy, toy_problems
from experiments.figures import pictures as drawing
from preload_jax import metrics
from preload_jax.errors import UserError, reason
from preload_jax.guarantees import ConfidenceProfile
from tests.experiments.results_for_tests import results, write

NAMES = ("in_domain", "photo", "faraway")


def pixels(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def assert_not_blank(figure, *, colours):
    """Something is drawn, in these colours, and nothing at the very edge."""
    image = pixels(figure).astype(int)
    assert (image != 255).any(axis=-1).mean() > 0.01
    for colour in colours:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(image - wanted).max(axis=-1) <= 2).any(), colour
    edge = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    assert (edge == 255).all()


def some_scores():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(-i, 1, 300).astype(np.float32) for i, name in enumerate(NAMES)}
    return values, {name: {"fpr95": 0.5, "auroc": 0.8} for name in NAMES[1:]}


def test_every_method_has_a_style_of_its_own():
    markers = [values["marker"] for values in style.METHOD_STYLES.values()]
    assert len(set(markers)) == len(markers)
    lines = [(values["color"], values["linestyle"]) for values in style.METHOD_STYLES.values()]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("draw", [scores.roc, scores.score_histograms])
def test_scores(draw):
    values, ood = some_scores()
    colours = (style.IN_DOMAIN, style.OOD) if draw is scores.roc else ()
    assert_not_blank(draw(values, ood, title="t"), colours=colours)


# Of folders and classes; what a picture has in their place.
NAMES_OF_USERS = {
    "$5_to_$": "$5_to_$",
    "a$x^2$b": "a$x^2$b",
    "one $": "one $",
    r"back\$slash\$": r"back\$slash\$",
    "a\nb\tc": r"a\nb\tc",
    "e\x1b[31mred": r"e\x1b[31mred",
    "\udcff\udcfe": r"\udcff\udcfe",
    "日本": r"\u65e5\u672c",
    "größer": "größer",
    "_under": "\u200b_under",
    "\u202eright": r"\u202eright",
}


def of_name(draw, name):
    values, ood = some_scores()
    reports = {name: {"oe": [shift_report(0.1)]}}
    t, up = np.logspace(0, 3, 10), np.tile(np.linspace(0.5, 1, 10)[:, None], (1, 4))
    figures = {
        "roc": lambda: scores.roc(
            {"in_domain": values["in_domain"], name: values["photo"]}, {name: ood["photo"]}, title=name
        ),
        "histograms": lambda: scores.score_histograms(
            {"in_domain": values["in_domain"], name: values["photo"]}, {name: ood["photo"]}, title=name
        ),
        "detectors": lambda: scores.detector_histograms(
            {"MSP": {"in_domain": values["in_domain"], name: values["photo"]}}
        ),
        "reliability": lambda: calibration.reliability(np.eye(2), np.arange(2), ece=0.0, title=name),
        "shift": lambda: calibration.shift_ece(reports, shift="rotation"),
        "rays": lambda: rays.rays({"oe": ConfidenceProfile(t, up, np.zeros_like(up))}, num_classes=2, title=name),
    }
    return figures[draw]()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES_OF_USERS)
@pytest.mark.parametrize("draw", ["roc", "histograms", "detectors", "reliability", "shift", "rays"])
def test_names_are_drawn_as_they_are(tmp_path, draw, name):
    figure = of_name(draw, name)
    style.save(figure, tmp_path / "figure.png")
    texts = [text.get_text().replace(r"\$", "$") for text in figure.findobj(Text)]
    assert any(NAMES_OF_USERS[name] in text for text in texts)


@pytest.mark.parametrize("error", [ValueError("no such\ncolour"), OSError(28, "No space left"), MemoryError()])
def test_a_picture_beside_results_that_fails_is_a_warning(tmp_path, error):
    def fails():
        raise error

    said, path = [], tmp_path / "figure.png"
    path.write_bytes(b"of other results")
    assert not style.save_or_warn(fails, path, warn=said.append)
    assert not path.exists()
    assert said == [f"{path} was left out ({reason(error)}); the results are complete without it"]
    assert style.save_or_warn(lambda: calibration.Figure((1, 1)), path, warn=said.append)
    assert len(said) == 1


def test_the_roc_curve_passes_where_the_metrics_say():
    import jax.numpy as jnp

    from preload_jax import metrics

    values, ood = some_scores()
    scores_in, scores_ood = jnp.asarray(values["in_domain"]), jnp.asarray(values["photo"])
    curve = scores.roc(values, ood, title="t").axes[0].lines[0].get_xydata() / 100
    area = float(np.trapezoid(curve[:, 1], curve[:, 0]))
    assert area == pytest.approx(float(metrics.auroc(scores_in, scores_ood)), abs=1e-4)
    tpr_95 = curve[np.searchsorted(curve[:, 1], 0.95), 0]
    assert tpr_95 == pytest.approx(float(metrics.fpr_at_tpr(scores_in, scores_ood)), abs=0.02)


def test_reliability_bars_are_accuracies():
    # Ten images of confidence 0.9, of which seven are right; five of 0.5, one right.
    probabilities = np.array([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 5)
    labels = np.array([0] * 7 + [1] * 3 + [0] + [1] * 4)
    figure = calibration.reliability(probabilities, labels, ece=0.1, title="t", num_bins=10)
    assert sorted(bar.get_height() for bar in figure.axes[0].patches) == [pytest.approx(20), pytest.approx(70)]
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == pytest.approx(100)
    assert [text.get_text() for text in figure.axes[1].texts] == ["5", "10"]
    assert_not_blank(figure, colours=(style.OOD,))


def shift_report(ece):
    others = {"accuracy": 0.5, "brier": 0.5, "log_likelihood": -1.0, "mmc": 0.6, "size": 100}
    levels = [{"kind": "rotation", "level": d, "ece": ece, **others} for d in (0, 90, 180)]
    return {"shift": "rotation", "levels": levels}


def test_shift_shows_means_over_seeds():
    reports = {"mnist": {"oe": [shift_report(0.1), shift_report(0.3)], "preload": [shift_report(0.5)]}}
    figure = calibration.shift_ece(reports, shift="rotation")
    lines = figure.axes[0].containers
    np.testing.assert_allclose(lines[0].lines[0].get_ydata(), [20, 20, 20])
    assert_not_blank(figure, colours=(style.METHOD_STYLES["oe"]["color"], style.VERMILION))


def test_rays():
    t = np.logspace(0, 3, 10)
    up = np.tile(np.linspace(0.5, 1, 10)[:, None], (1, 4))
    profiles = {
        "standard": ConfidenceProfile(t, up, np.zeros_like(up)),
        "preload": ConfidenceProfile(t, 1 - up, up),
    }
    figure = rays.rays(profiles, num_classes=2, title="t")
    assert_not_blank(figure, colours=(style.IN_DOMAIN, style.OOD))
    assert [axis.get_title() for axis in figure.axes] == [
        "Standard: far away 100 % end in a class",
        "PreLoad: far away 0 % end in a class",
    ]


@pytest.fixture(scope="module")
def line_networks():
    problem = toy_problems.line()
    return problem, [toy_problems.train(problem, name, num_steps=300) for name in ("standard", "preload")]


def test_figure_2_shows_what_the_theorem_says(line_networks):
    problem, (standard, preload) = line_networks
    far = np.array([[-1e4], [1e4]], np.float32)
    assert (standard.probabilities(far).max(axis=1) > 0.999).all()
    assert (preload.probabilities(far)[:, :2].max(axis=1) < 1e-3).all()
    for network in (standard, preload):
        assert (network.probabilities(problem.points).argmax(axis=1) == problem.labels).mean() > 0.95
    assert_not_blank(toy.logits_on_the_line(problem, [standard, preload]), colours=(style.BLUE, style.VERMILION))


def test_figure_1():
    problem = toy_problems.plane(num_points=100)
    networks = [toy_problems.train(problem, name, num_steps=100) for name in ("oe",)]
    assert_not_blank(toy.confidence_maps(problem, networks, resolution=51), colours=(style.BLUE,))


def request(root, **changes):
    values = {"datasets": (), "methods": (), "seed": 0, "data_dir": None, **changes}
    return drawing.Request(root=root, output=root / "figures", **values)


def test_what_can_be_drawn_is_and_the_rest_is_said(tmp_path, capsys):
    values, _ = some_scores()
    told = results(ood={"photo": 0.1})
    auroc = metrics.auroc(values["in_domain"], values["photo"])
    told["ood"]["photo"] |= {"auroc": auroc, "size": len(values["photo"])}
    folder = write(tmp_path, told)
    np.savez(folder / "scores.npz", in_domain=values["in_domain"], photo=values["photo"])
    names = ("roc", "histograms", "reliability", "rays", "shift")
    paths = list(drawing.draw(request(tmp_path), names=names, asked=False))
    assert [path.name for path in paths] == ["roc_digits_preload.png", "histograms_digits_preload.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)
    left_out = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert left_out == ["left out reliability", "left out rays", "left out shift"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"figure": "pie"}, "unknown --figure 'pie'"),
        ({"figure": "roc"}, "no results.json under"),
        ({"figure": "shift"}, "no shift_*.json of the wanted runs"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, options, expected):
    with pytest.raises(UserError) as error:
        command.main(command.Args(root=tmp_path, output=tmp_path, **options))
    assert expected in str(error.value)


def test_a_shift_of_a_run_is_found(tmp_path):
    from experiments.runs import configuration, recipes
    from experiments.runs import folder as runs
    from preload_jax.data import datasets

    folder = write(tmp_path, results())
    runs.write_json(folder / "config.json", configuration.as_dict(recipes.get(datasets.get("digits"), "preload")))
    (folder / "shift_rotation.json").write_text(json.dumps(shift_report(0.2)))
    (path,) = drawing.draw(request(tmp_path), names=("shift",), asked=True)
    assert path.name == "figure3_rotation.png"


@pytest.mark.parametrize(
    ("options", "toys"),
    [({}, True), ({"dataset": "digits"}, False), ({"dataset": "digits", "figure": "toy_1d"}, True)],
)
def test_the_toy_problems_are_of_no_data_set(tmp_path, monkeypatch, options, toys):
    wanted = []
    monkeypatch.setattr(drawing, "draw", lambda request, *, names, asked, say: wanted.append((names, asked)) or ())
    assert command.main(command.Args(root=tmp_path, output=tmp_path, **options)) == 0
    ((names, by_name),) = wanted
    assert bool(set(names) & set(drawing.TOYS)) == toys
    assert by_name == ("figure" in options)
    assert by_name or {"roc", "rays"} < set(names)
