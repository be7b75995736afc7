"""Features and logits of any network, in .npz files: what `evaluate --features` reads."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli.display import Display
from experiments.evaluate import detectors as by_detector
from preload_jax import detectors
from preload_jax.checks import check_labels, require_finite
from preload_jax.data.readers import array_files
from preload_jax.detectors import Outputs
from preload_jax.detectors.arguments import as_head
from preload_jax.errors import DataError, UserError, what_instead
from preload_jax.integers import require_integer
from preload_jax.rows import spread

_ARRAYS = ("features", "logits", "labels", "kernel", "bias", "num_classes")
# Rows on which the head is compared with the logits, and by how much they may differ, of the largest logit.
_COMPARED, _TOLERANCE = 1000, 0.01


_NO_OOD_CLASS = (
    "the files do not say whether the last logit is of an OOD class; with num_classes, or with a kernel of one column"
    " fewer than there are logits, they do"
)


@dataclass(frozen=True)
class FeatureFile:
    """What a file holds.

    Attributes:
        outputs: features [n, d] and logits [n, K], one of them or both.
        labels: integers [n], or None.
        head: (kernel [d, K], bias [K]), or None.
        num_classes: K, or None where it is not said.
    """

    outputs: Outputs
    labels: np.ndarray | None
    head: tuple[np.ndarray, np.ndarray] | None
    num_classes: int | None


def read(path: Path) -> FeatureFile:
    """Reads a .npz file with some of the arrays features, logits, labels, kernel, bias and num_classes.

    Raises:
        DataError: for a file that is missing, damaged or of other arrays.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: {what_instead(path)}; expected a .npz with 'features' and 'logits'")
    there = array_files.names_in(path)
    unknown = sorted(set(there) - set(_ARRAYS))
    if unknown or not {"features", "logits"} & set(there):
        raise DataError(f"{path}: has {sorted(there)}; expected some of {list(_ARRAYS)}, features or logits among them")
    if ("kernel" in there) != ("bias" in there):
        raise DataError(f"{path}: has one of 'kernel' and 'bias'; expected both, of the last layer, or none")
    arrays = array_files.read_npz(path, there, copies=2)
    try:
        labels = check_labels(arrays["labels"]) if "labels" in arrays else None
        for name in set(_ARRAYS[:2]) & set(arrays):
            _check_matrix(name, arrays[name])
        head = as_head((arrays["kernel"], arrays["bias"])) if "kernel" in arrays else None
        said = arrays.get("num_classes")
        num_classes = None if said is None else require_integer("num_classes", said, at_least=2)
    except UserError as error:
        raise DataError(f"{path}: {error}") from None
    sizes = {name: len(array) for name, array in arrays.items() if name in _ARRAYS[:3]}
    if len(set(sizes.values())) > 1:
        rows = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise DataError(f"{path}: its arrays have different numbers of rows ({rows}); expected one for each example")
    if head is not None and "features" in arrays and arrays["features"].shape[1] != head[0].shape[0]:
        raise DataError(
            f"{path}: features have {arrays['features'].shape[1]} columns and the kernel {head[0].shape[0]} rows;"
            " expected the same number (torch's weight is [K, d]: transpose it)"
        )
    return FeatureFile(Outputs(arrays.get("features"), arrays.get("logits")), labels, head, num_classes)


def _check_matrix(name: str, array: np.ndarray) -> None:
    """Raises a UserError unless it is [n, m] of finite floating-point numbers, n ≥ 1."""
    if array.ndim != 2 or array.dtype.kind != "f":
        raise UserError(f"{name} are {array.dtype} {list(array.shape)}; expected floating point [n, …]")
    if not len(array):
        raise UserError(f"{name} have no rows; expected one for each example")
    require_finite(array, name=name)


def _require_alike(first: Path, training: FeatureFile, others: dict[Path, FeatureFile]) -> None:
    """Raises a DataError unless all files are of one network."""
    for path, other in others.items():
        for name in _ARRAYS[:2]:
            one, two = (getattr(part.outputs, name) for part in (training, other))
            if one is not None and two is not None and one.shape[1] != two.shape[1]:
                raise DataError(
                    f"{path}: {name} have {two.shape[1]} columns, those of {first} {one.shape[1]}; expected outputs of"
                    " one network"
                )


def measure(
    chosen: Sequence[str],
    train: Path,
    test: Path,
    ood: Sequence[str],
    *,
    near: Sequence[str],
    display: Display,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """`detectors.measure` of files; OOD sets are called by their files' names without the ending.

    Args:
        chosen: rows of `preload_jax.detectors.TABLE`.
        train: the training data's file, with labels and head where detectors need them.
        test: the in-domain test data's file; with labels and logits the accuracy is computed, too.
        ood: files of OOD data.
        near: those of them that are near-OOD.
        display: shows progress.

    Raises:
        UserError: for no OOD file, two of one name, or what `read` raises.
    """
    if not ood:
        raise UserError("--features needs --ood: one .npz of features an OOD test set, joined by commas")
    files = {Path(name).stem: Path(name) for name in ood}
    if "in_domain" in files:
        raise UserError("in_domain.npz: the in-domain scores have that name; rename this file of OOD data")
    if len(files) < len(ood):
        raise UserError("two OOD files have one name; their names without the ending are the sets' names: rename one")
    training, tested = read(train), read(test)
    of_sets = {name: read(path) for name, path in files.items()}
    _require_alike(train, training, {test: tested, **{files[name]: part for name, part in of_sets.items()}})
    known = _num_classes(training)
    for path, part in ((train, training), (test, tested)):
        classes = known or (None if part.outputs.logits is None else part.outputs.logits.shape[1])
        if part.labels is not None and classes is not None and part.labels.max() >= classes:
            raise DataError(f"{path}: labels run to {part.labels.max()}; expected 0 to {classes - 1}")
    _warn_of_head(train, training, display)
    of_ood_class = [name for name in chosen if known is None and "ood_logit" in detectors.get(name).needs]
    found, scores = by_detector.measure(
        [name for name in chosen if name not in of_ood_class],
        (training.outputs, training.labels),
        tested.outputs,
        {name: part.outputs for name, part in of_sets.items()},
        head=training.head,
        num_classes=known,
        near=[Path(name).stem for name in near],
        display=display,
    )
    found |= {name: {"left_out": _NO_OOD_CLASS} for name in of_ood_class}
    by_detector.require_some(found)
    results: dict[str, Any] = {"train": str(train), "test": str(test), "detectors": found}
    if tested.labels is not None and tested.outputs.logits is not None:
        results["accuracy"] = float(np.mean(np.argmax(tested.outputs.logits, axis=1) == tested.labels))
    return results, scores


def _num_classes(training: FeatureFile) -> int | None:
    """K, where it is said, or where the logits have one column more than the head: the last is the OOD class then."""
    if training.num_classes is not None:
        return training.num_classes
    if training.head is None or training.outputs.logits is None or np.ndim(training.outputs.logits) != 2:
        return None
    classes = int(np.shape(training.head[0])[-1])
    return classes if np.shape(training.outputs.logits)[1] == classes + 1 else None


def _warn_of_head(path: Path, training: FeatureFile, display: Display) -> None:
    """Warns where the head does not give the logits: detectors that read it would see another network."""
    features, logits = training.outputs.features, training.outputs.logits
    if training.head is None or features is None or logits is None:
        return
    kernel, bias = training.head
    columns = min(kernel.shape[1], logits.shape[1])
    some = spread(len(features), _COMPARED)
    given = logits[some, :columns].astype(np.float64)
    apart = np.abs(features[some].astype(np.float64) @ kernel[:, :columns] + bias[:columns] - given).max()
    scale = np.abs(given).max()
    if not apart <= _TOLERANCE * scale:
        display.warn(
            f"{path}: features · kernel + bias are not its logits: they differ by up to {apart:.3g}, and the logits run"
            f" up to {scale:.3g}. Detectors that need the head see another network than those that need the logits"
        )


def table(results: dict[str, Any], *, ood_positive: bool) -> str:
    """The detectors' table, and the accuracy where it is known."""
    about = f"accuracy on {results['test']}: {100 * results['accuracy']:.1f} %\n" if "accuracy" in results else ""
    return by_detector.table(results["detectors"], ood_positive=ood_positive) + about


def default_detectors() -> tuple[str, ...]:
    """Those that read nothing but features, logits, labels and the head."""
    there = {"features", "logits", "labels", "head"}
    return tuple(name for name, row in detectors.TABLE.items() if set(row.needs) <= there)
