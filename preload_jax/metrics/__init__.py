"""OOD-detection and calibration metrics: pure functions.  Most return fractions.

In-domain is the positive class and a score is higher for in-domain inputs, as in the paper.  For toolkits in which OOD
is positive and a higher score means more OOD (pytorch-ood; OpenOOD negates its `conf`), `from_ood_scores` and
`to_ood_scores` convert, and `fpr_at_tpr` and `aupr` take `ood_positive=True`; AUROC is the same both ways.

Metrics of arrays on the host are computed by NumPy, in the arrays' own precision with sums in float64, a block of rows
at a time.  Metrics of traced arrays and of arrays on an accelerator are computed by JAX.  If all arrays are NumPy's,
the result is a NumPy float64, and else a JAX array.

Every function works under `jax.jit` (except the two that convert, those that take logits, and the adaptive, the
classwise and the resampled calibration error, which are computed on the host), also where some of its arrays come from
outside the jitted function.  Empty input raises a UserError, and so does NaN in an array that is not
traced; in a traced one it gives NaN.  Scores may be ±inf, and of any real type: two scores that differ never tie.
"""

from preload_jax.metrics.calibration import (
    accuracy,
    brier_score,
    expected_calibration_error,
    expected_calibration_error_released_code,
    log_likelihood,
    mean_max_confidence,
)
from preload_jax.metrics.calibration_errors import (
    CalibrationInterval,
    adaptive_calibration_error,
    calibration_error_interval,
    classwise_calibration_error,
)
from preload_jax.metrics.conversions import from_ood_scores, to_ood_scores
from preload_jax.metrics.of_logits import classification, mean_max_confidence_of_logits
from preload_jax.metrics.ood import aupr, auroc, fpr_at_tpr, threshold_at_tpr
from preload_jax.metrics.values import check_scores, check_values

__all__ = [
    "CalibrationInterval",
    "accuracy",
    "adaptive_calibration_error",
    "aupr",
    "auroc",
    "brier_score",
    "calibration_error_interval",
    "check_scores",
    "check_values",
    "classification",
    "classwise_calibration_error",
    "expected_calibration_error",
    "expected_calibration_error_released_code",
    "fpr_at_tpr",
    "from_ood_scores",
    "log_likelihood",
    "mean_max_confidence",
    "mean_max_confidence_of_logits",
    "threshold_at_tpr",
    "to_ood_scores",
]
