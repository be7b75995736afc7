"""The tables and sentences about results/ in the documentation; every number in them is worked out here."""

from experiments.runs import paper_numbers, records, titles
from experiments.runs.estimates import best, differs, estimate
from experiments.tables import by_detector, leaderboard
from experiments.tables.cells import MEASURES
from experiments.tables.render import number, with_seeds

FPR, AUROC, ACCURACY, ECE = (MEASURES[name] for name in ("fpr95", "auroc", "accuracy", "ece"))
# Points of a percent: what the sentences call near and far from the paper's mean, and a loss of accuracy.
NEAR, FAR, LOSS = 0.01, 0.05, 0.01
# Degrees: the paper's Figure 3 spreads there, and digits are not yet upside down.
ANGLE = 75


def sections(there):
    """Of each data set and set-up: a table, and what it says."""
    order = list(titles.DATASETS)
    pairs = [(dataset, setup) for setup in there for dataset in setup.results.datasets()]
    return "\n".join(section(setup, dataset) for dataset, setup in sorted(pairs, key=lambda pair: order.index(pair[0])))


def section(setup, dataset):
    """One data set of a set-up."""
    lines = [f"## {titles.dataset(dataset)}: {setup.title}", "", setup.note, "", by_set(setup, dataset)]
    said = [claim(setup, dataset) for claim in (far_away, accuracy, beside_paper, rotation)]
    return "\n".join([*lines, *(f"{claim}\n" for claim in said if claim)])


def by_set(setup, dataset, only=None):
    """Accuracy and FPR-95 of each OOD set by method, with the paper's number behind a stroke where it has one."""
    entries = [entry for entry in leaderboard.methods(setup.results, dataset) if only is None or entry.title in only]
    columns = [None, *_sets(entries, dataset)]
    values = {entry.title: {column: _ours(entry, column) for column in columns} for entry in entries}
    groups = [[e.title for e in entries if _fine_tuned(e) == tuned] for tuned in (False, True)]
    bold = {column: set() for column in columns}
    for column in columns:
        for group in (group for group in groups if len(group) > 1):
            of_group = {title: values[title][column] for title in group}
            bold[column] |= best(of_group, lower_is_better=column is not None, rounding=paper_numbers.ROUNDING)
    heads = ["accuracy ↑", *(f"{titles.ood(name)} ↓" for name in columns[1:])]
    lines = [f"| | {' | '.join(heads)} |", "|---" + "|--:" * len(columns) + "|"]
    for entry in entries:
        cells = []
        for column, value in values[entry.title].items():
            text = with_seeds(value, len(entry.runs), ACCURACY if column is None else FPR)
            text = f"**{text}**" if entry.title in bold[column] else text
            paper = _paper(entry, column)
            cells.append(text if paper is None else f"{text} / {number(paper, FPR)}")
        lines.append(f"| {entry.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _sets(entries, dataset):
    """The OOD sets that all have, in the order of the paper's tables."""
    every = [run["ood"] for entry in entries for run in entry.runs]
    return titles.ordered(dataset, [name for name in every[0] if all(name in ood for ood in every)])


def _ours(entry, of_set, measure=None):
    """The estimate of an entry's FPR-95 on an OOD set, or of its accuracy where there is no set."""
    key = (measure or (ACCURACY if of_set is None else FPR)).key
    return estimate([(run["in_domain"] if of_set is None else run["ood"][of_set])[key] for run in entry.runs])


def _paper(entry, of_set):
    run = entry.runs[0]
    # Numbers of another network are nothing to compare with.
    if "ensemble" in run or any(change.startswith("data.backbone ") for change in run["not_as_recipe"]):
        return None
    if of_set is None:
        return paper_numbers.in_domain("accuracy", run["dataset"], run["method"])
    return paper_numbers.ood("fpr95", run["dataset"], of_set, run["method"])


def _fine_tuned(entry):
    return entry.runs[0]["method"] in titles.FINE_TUNED


def far_away(setup, dataset):
    """Which methods let no far-away image pass."""
    entries = leaderboard.methods(setup.results, dataset)
    sets = [name for name in _sets(entries, dataset) if name in titles.FAR_SETS]
    if not sets:
        return ""
    worst = {entry.title: max(_ours(entry, name).mean for name in sets) for entry in entries}
    none, some = [t for t, share in worst.items() if share == 0], {t: s for t, s in worst.items() if s > 0}
    text = f"**Far away.** On {_and(map(titles.ood, sets))}, no image passes with {_and(none) or 'any method'}."
    if not none:
        text = f"**Far away.** On {_and(map(titles.ood, sets))}, some images pass with every method."
    if some:
        least = min(some, key=some.get)
        text += f" Of the others {least} lets the fewest pass on its worse set: {100 * some[least]:.1f} %."
    return text


def accuracy(setup, dataset):
    """Which methods lose accuracy against Standard."""
    found = {entry.title: _ours(entry, None) for entry in leaderboard.methods(setup.results, dataset)}
    if (standard := found.pop("Standard", None)) is None:
        return ""
    losing = {title: value for title, value in found.items() if value.mean < standard.mean - LOSS}
    text = f"**Accuracy.** Standard has {number(standard, ACCURACY)} %."
    if not losing:
        return f"{text} No method has over {100 * LOSS:g} point less."
    listed = _and(f"{title} ({number(value, ACCURACY)} %)" for title, value in losing.items())
    return f"{text} Over {100 * LOSS:g} point less: {listed}."


def beside_paper(setup, dataset):
    """How many FPR-95 are near the paper's, and which are not."""
    entries = leaderboard.methods(setup.results, dataset)
    pairs = [
        (f"{entry.title} on {titles.ood(name)}", _ours(entry, name), paper)
        for entry in entries
        for name in _sets(entries, dataset)
        if (paper := _paper(entry, name)) is not None and not any(run["not_as_recipe"] for run in entry.runs)
    ]
    if not pairs:
        return ""
    near = sum(abs(ours.mean - paper.mean) <= NEAR + paper_numbers.ROUNDING for _, ours, paper in pairs)
    verdicts = [differs(ours, paper, rounding=paper_numbers.ROUNDING) for _, ours, paper in pairs]
    text = f"**Beside the paper.** {near} of {len(pairs)} FPR-95 are within {100 * NEAR:g} point of the paper's mean."
    if all(verdict is None for verdict in verdicts):
        text += " Each of ours is of one seed and has no error, so none can be called different."
    else:
        text += f" {sum(map(bool, verdicts))} differ by more than the combined error."
    far = [pair for pair in pairs if abs(pair[1].mean - pair[2].mean) > FAR + paper_numbers.ROUNDING]
    lines = [f"- {what}: {number(ours, FPR)} against {number(paper, FPR)}." for what, ours, paper in far]
    return "\n".join([f"{text} More than {100 * FAR:g} points away:", "", *lines]) if far else text


def rotation(setup, dataset):
    """The ECE of the images turned by ANGLE, where all runs were evaluated so."""
    entries = {
        entry.title: [run["shifts"]["rotation"]["levels"] for run in entry.runs]
        for entry in leaderboard.methods(setup.results, dataset)
        if all("rotation" in run.get("shifts", {}) for run in entry.runs)
    }
    if not entries:
        return ""
    found = {
        title: estimate([row["ece"] for levels in runs for row in levels if row["level"] == ANGLE])
        for title, runs in entries.items()
    }
    order = sorted(found, key=lambda title: found[title].mean)
    listed = _and(f"{title} ({number(found[title], ECE)} %)" for title in order)
    return f"**Rotated by {ANGLE}°.** ECE, lowest first: {listed}."


def study(paths):
    """One method with other settings, a result file each: what was changed, and what came of it."""
    runs = [records.read(path, advice="") for path in sorted(paths)]
    runs.sort(key=lambda run: (run["method"] != "standard", _changes(run)))
    sets = titles.ordered(runs[0]["dataset"], [name for name in runs[0]["ood"] if all(name in r["ood"] for r in runs)])
    heads = ["accuracy, validation ↑", "accuracy, test ↑", *(f"{titles.ood(name)} ↓" for name in sets)]
    lines = [f"| {titles.dataset(runs[0]['dataset'])} | {' | '.join(heads)} |", "|---" + "|--:" * len(heads) + "|"]
    for run in runs:
        shares = [run["validation"]["accuracy"], run["in_domain"]["accuracy"], *(run["ood"][s]["fpr95"] for s in sets)]
        title = titles.METHOD_TITLES[run["method"]]
        lines.append(f"| {title}, {_changes(run)} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
    return "\n".join(lines) + "\n"


def _changes(run):
    """What of the recipe was changed but for the outliers, in words."""
    changes = [text.partition(" (")[0] for text in run["not_as_recipe"] if not text.startswith("outliers ")]
    named = (change.removeprefix("optimizer.").replace("_", " ") for change in changes)
    return ", ".join(named) or f"the {run['recipe']} recipe's numbers"


def detectors(there):
    """FPR-95 / AUROC of each detector on each OOD set, where runs were given detectors."""
    parts = []
    for setup in there:
        for name in ("fpr95", "auroc"):
            made = by_detector.build(name, setup.results, methods=tuple(titles.METHOD_TITLES))
            parts += [by_detector.markdown(table) for table in made]
    return "\n".join(parts)


def _and(names):
    """A list of names in words."""
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last
