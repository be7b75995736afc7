"""The JSON documents of a run's folder: what each must hold, and reading them."""

from pathlib import Path
from typing import Any

from preload_jax.errors import DataError, UserError
from preload_jax.formats import records

_OOD = {"fpr95": float, "auroc": float, "aupr": float, "mmc": float, "size?": int}
_IN_DOMAIN = {"accuracy": float, "ece": float, "brier": float, "log_likelihood": float, "mmc": float, "size?": int}
RESULTS = {
    "dataset": str,
    "method": str,
    "seed": int,
    "recipe?": (str, None),
    "num_parameters?": int,
    "train_size?": int,
    "validation?": {"accuracy?": (float, None), "size?": int, "split?": str},
    "in_domain": _IN_DOMAIN,
    "ood": {str: _OOD},
    "ood_not_prepared?": [str],
}
# A level is of a rotation's angle, or of a corruption's severity.
LEVEL = {"kind": str, "level": int, "ece": float, "size?": int}
LEVEL |= dict.fromkeys(("accuracy?", "brier?", "log_likelihood?", "mmc?"), float)  # type: ignore[arg-type]
SHIFT = {"shift": str, "label?": str, "num_images?": (int, None), "levels": [LEVEL]}
EPOCH = {"step": int, "loss?": float, "accuracy?": float, "learning_rate?": float, "epoch?": int, "stage?": int}
# What the fields hold is checked when the configuration is made of them.
CONFIG = {"dataset": str, "method": str, "seed": int}


def read(path: Path, kind: Any, *, missing: str, damaged: str) -> dict[str, Any]:
    """A document of a run's folder, checked by its schema and, where it has one, its digest.

    Args:
        path: of the file.
        kind: one of the schemas here.
        missing, damaged: what to do when it is not there, and when it is not what it should be.

    Raises:
        UserError: in either case, in one line.
    """
    try:
        return records.read(path, kind)
    except FileNotFoundError:
        raise UserError(f"no {path.name} in {path.parent}: {missing}") from None
    except DataError as error:
        raise UserError(f"{path} is damaged ({error}); {damaged}") from None
