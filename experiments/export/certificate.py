"""What an exported file says is proved about its network, and for which precision."""

from typing import Any

import numpy as np

from experiments.runs.trained import Trained
from preload_jax.errors import UserError, require_plain_file
from preload_jax.formats import strict_json
from preload_jax.guarantees import program_certificate

# Of log-odds, between two computations of the same.
_CLOSE = 1e-6
_ALONG_PRECISION = "exact arithmetic with the stored parameters, computed in float64; no statement about float32"
# Of a run's certificate.json.
_ALONG = (
    "num_directions",
    "directions_seed",
    "share_with_limiting_confidence_1",
    "share_ending_in_extra_class",
    "dead_directions",
    "undecided_directions",
    "smallest_slope",
    "whole_rays",
)


def of_network(network: Trained) -> dict[str, Any]:
    """For JSON: what follows from the parameters alone, and what the run's own certificate says beyond that.

    Raises:
        UserError: when the run's certificate is damaged, or of another network.
    """
    found = program_certificate(
        network.model, network.variables, network.spec.image_shape, class_names=network.spec.class_names
    )
    along = _along(network, found["largest_confidence"])
    if along is None:
        return found
    return {
        **found,
        "holds_for": {**found["holds_for"], "along_directions": _ALONG_PRECISION},
        "along_directions": along,
    }


def _log_odds(largest: dict[str, Any]) -> list[float]:
    """By which a network's certificate is told from another's; infinite for a head without a bound."""
    return [np.inf if row["largest_log_odds"] is None else row["largest_log_odds"] for row in largest["classes"]]


def _along(network: Trained, largest: dict[str, Any]) -> dict[str, Any] | None:
    """What `experiments.certify` found along random directions; None where it was not asked."""
    if network.run_dir is None:
        return None
    path = network.run_dir.path / "certificate.json"
    advice = "run experiments.certify again"
    require_plain_file(path)
    try:
        kept = strict_json.parse(path.read_bytes())
        same = np.allclose(_log_odds(kept["largest_confidence"]), _log_odds(largest), rtol=_CLOSE, atol=_CLOSE)
        found = {name: kept[name] for name in _ALONG}
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); {advice}") from None
    if not same:
        raise UserError(f"{path} is of another network than the run's; {advice}")
    return found
