"""What an exported file says is proved about its network, and for which precision."""

from typing import Any

import numpy as np

from experiments.certify import by_head, certificate
from experiments.runs import records
from experiments.runs.trained import Trained
from preload_jax.errors import UserError, require_plain_file
from preload_jax.formats import strict_json
from preload_jax.guarantees import nonnegative_embeddings, safe_radius
from preload_jax.models import head_options

# Confidence that no class exceeds beyond the radii.
CONFIDENCE = 0.5
# Of log-odds, between two computations of the same.
_CLOSE = 1e-6
_PRECISION = {
    "parameters": "float32, as the file holds them",
    "largest_confidence": (
        "whatever precision the backbone computes in: it is over all embeddings. Computed in float64 and rounded"
        " outwards; the head's own float32 logits may differ from it by about 1e-6 of their size"
    ),
    "safe_radius": "as largest_confidence, of the embedding that the backbone computed",
    "input_radius": (
        "float32, in which the head, and the distance or the densities, compute on every platform. Computed in float64,"
        " and rounded up for that"
    ),
    "along_directions": "exact arithmetic with the stored parameters, computed in float64; no statement about float32",
}
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
    model, head = network.model, network.variables["params"]["head"]
    options: dict[str, Any] = {
        **head_options(model.head),
        "nonnegative": nonnegative_embeddings(model, network.variables, network.spec.image_shape),
    }
    bound, radius = by_head.bound(model, network.variables, options), safe_radius(head, CONFIDENCE, **options)
    in_input = by_head.input_radius(model, network.variables, CONFIDENCE)
    largest = certificate.largest_confidence(bound, radius, class_names=network.spec.class_names)
    apart = by_head.input_radius_as_dict(in_input)
    found: dict[str, Any] = {
        "largest_confidence": largest,
        "safe_radius": {
            "confidence": CONFIDENCE,
            "radius": records.finite(radius.radius),
        },
        "input_radius": None if apart is None else {"confidence": CONFIDENCE, **apart},
        "along_directions": _along(network, largest),
    }
    return {"holds_for": {name: text for name, text in _PRECISION.items() if found.get(name, True)}, **found}


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
