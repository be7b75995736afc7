"""Statistics of training features, a block at a time and in float64: means, covariances, exact percentiles.

Covariances of ReLU features are close to singular: float32 is not enough for them, and accelerators have no fast
float64, so these run on the host.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from preload_jax.detectors.data import Outputs, Training, require_finite_block
from preload_jax.devices import threads
from preload_jax.errors import UserError

Values = Callable[[Outputs], np.ndarray]
# Rows that are added up in float32.
_ROWS = 64
# Entries whose bits are counted at once.
_ENTRIES = 1 << 17
# Columns of the blocks of a triangular matrix that are inverted.
_COLUMNS = 64


def features_of(block: Outputs, chosen: Any = slice(None)) -> np.ndarray:
    """The block's features in float64, [rows, d], or those of the chosen rows."""
    return np.asarray(block.features[chosen], np.float64)


def class_means(training: Training, values: Values = features_of, *, minimum: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The number of examples of each class [K] and their mean [K, d], in one pass.

    Raises:
        UserError: where a class has fewer examples than `minimum`.
    """

    def of_block(block: Outputs, labels: np.ndarray) -> list[np.ndarray]:
        counts = np.bincount(labels, minlength=training.num_classes)
        return [counts, group_sums(values(block), labels, training.num_classes)]

    counts, sums = telling_totals(training, of_block)
    require_examples(counts, minimum)
    return counts, sums / counts[:, None]


def totals(training: Training, function: Callable[[Outputs, Any], list[Any]]) -> list[Any]:
    """The sums over all blocks of what function(block, labels) returns, in one pass; see `threads.in_order`."""

    def of_checked(given: tuple[Outputs, Any]) -> list[Any]:
        require_finite_block(given[0])
        return function(*given)

    return _added(threads.in_order(of_checked, training.blocks(checked=False)))


def telling_totals(training: Training, function: Callable[[Outputs, Any], list[Any]]) -> list[Any]:
    """The same where features that are not finite make a sum that is not: they are looked at only then."""
    return _added(threads.in_order(_telling(function), training.blocks(checked=False)))


def _telling(function: Callable[[Outputs, Any], list[Any]]) -> Callable[[tuple[Outputs, Any]], list[Any]]:
    def of_block(given: tuple[Outputs, Any]) -> list[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            parts = function(*given)
        tells = not all(np.isfinite(part).all() for part in parts)
        require_finite_block(given[0] if tells else replace(given[0], features=None))
        return parts

    return of_block


def _added(found: Iterable[list[Any]]) -> list[Any]:
    sums: list[Any] = []
    for parts in found:
        # In place: to make large arrays anew keeps a core from the threads.
        for i, part in enumerate(parts if sums else ()):
            sums[i] += part
        sums = sums or parts
    return sums


def _rows_of(block: Outputs, rows: np.ndarray) -> Outputs:
    """Some rows of a block's features and maps."""
    maps = None if block.maps is None else tuple(x[rows] for x in block.maps)
    return replace(block, features=None if block.features is None else block.features[rows], maps=maps)


def group_sums(x: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
    """The sum of the rows of each group, [num_groups, d], in float64, without a copy of the rows."""
    member = scipy.sparse.csr_array((np.ones(len(x)), (groups, np.arange(len(x)))), shape=(num_groups, len(x)))
    return member @ x


def require_examples(counts: np.ndarray, minimum: int = 1) -> None:
    """Raises a UserError where a class has fewer than `minimum` examples."""
    if counts.min() < minimum:
        few, why = int(counts.argmin()), "" if minimum == 1 else f"; a covariance needs at least {minimum}"
        raise UserError(
            f"class {few} has {counts[few]} examples{why}"
            + ("; give at least one of each class" if minimum == 1 else "")
            + if_ood_class(counts)
        )


def if_ood_class(counts: np.ndarray) -> str:
    """For messages: what to do where the last class alone has no examples, as that of an OOD class's logit has none."""
    k = len(counts) - 1
    if k < 2 or counts[k] or not counts[:k].all():
        return ""
    return f"; if the last of the {k + 1} logits is of an OOD class, give num_classes={k}"


def mean(training: Training) -> np.ndarray:
    """The mean features of all examples, [d], in one pass.

    Rows are added up in the features' own type by the 64, and from there in float64.
    """

    def of_block(block: Outputs, _: Any) -> list[Any]:
        x = block.features
        whole = len(x) // _ROWS * _ROWS
        # Rows that lie far apart, so that it is one product with a vector, as fast as memory is read.
        some = (np.ones(_ROWS, x.dtype) @ x[:whole].reshape(_ROWS, -1)).reshape(-1, x.shape[1])
        total = some.sum(axis=0, dtype=np.float64) + x[whole:].sum(axis=0, dtype=np.float64)
        # What is finite may overflow in the features' own type.
        return [total if np.isfinite(total).all() else x.sum(axis=0, dtype=np.float64), len(x)]

    # One block after the other: BLAS's own threads share a product that is as fast as memory.
    total, count = _added(map(_telling(of_block), training.blocks(checked=False)))
    return total / count


def scatter(training: Training, centred: Callable[[Outputs, Any], np.ndarray]) -> np.ndarray:
    """Σ x xᵀ over the rows x of centred(block, labels) in float64, [d, d], in one pass."""

    def of_block(block: Outputs, labels: Any) -> list[np.ndarray]:
        x = centred(block, labels)
        # Half of the work of a general product, which NumPy sees.
        return [x.T @ x]

    return telling_totals(training, of_block)[0]


def within_classes(training: Training, values: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n_c [K], μ_c [K, d] and S = Σ_i (x_i − μ_{y_i})(x_i − μ_{y_i})ᵀ [d, d], in one pass.

    Sums are of x_i − o_{y_i}, with o_c the first example of class c.  It is no farther from μ_c than examples are, so
    that few digits are lost in S = Σ_i (x_i − o_{y_i})(x_i − o_{y_i})ᵀ − Σ_c n_c (μ_c − o_c)(μ_c − o_c)ᵀ.

    Raises:
        UserError: where a class has no examples.
    """
    origins, found = np.empty((0, 0)), np.zeros(training.num_classes, bool)

    def blocks(**how: Any) -> Iterator[tuple[Outputs, Any]]:
        nonlocal origins
        for block, labels in training.blocks(**how):
            if not found.all():
                classes, first = np.unique(labels, return_index=True)
                with np.errstate(invalid="ignore"):
                    examples = values(_rows_of(block, first)).astype(np.float64)
                origins = origins if origins.size else np.zeros((len(found), examples.shape[1]))
                # Threads read the rows of other classes at the same time.
                new = ~found[classes]
                origins[classes[new]], found[classes] = examples[new], True
            yield block, labels

    def of_block(block: Outputs, labels: np.ndarray) -> list[np.ndarray]:
        x = origins[labels]
        np.subtract(values(block), x, out=x)
        # Half of the work of a general product, which NumPy sees.
        return [np.bincount(labels, minlength=len(found)), group_sums(x, labels, len(found)), x.T @ x]

    counts, sums, scatters = telling_totals(replace(training, blocks=blocks), of_block)
    require_examples(counts)
    shifts = sums / counts[:, None]
    rest = shifts * np.sqrt(counts)[:, None]
    with threads.blas_alone():
        scatters -= rest.T @ rest
    # What does not vary may be a little below 0 now.
    np.fill_diagonal(scatters, np.maximum(np.diagonal(scatters), 0.0))
    return counts, origins + shifts, scatters


def factor(covariances: Callable[[], Iterator[np.ndarray]], jitter: float | None) -> tuple[list[np.ndarray], float]:
    """Lower Cholesky factors of some covariances plus jitter·I, and the jitter.

    Args:
        covariances: called anew for each jitter tried, gives the matrices.
        jitter: in squared units of the features.  None tries 0 and then ε·s·{1, 10, 100, …}, with ε the float64
            rounding unit and s the mean variance, and keeps the first with which every matrix has a factor.

    Raises:
        UserError: where none has.
    """
    amount = 0.0
    for amount in _ladder(covariances()) if jitter is None else [jitter]:
        try:
            with_jitter = (c + amount * np.eye(len(c)) for c in covariances())
            with threads.blas_alone():
                return list(threads.in_order(np.linalg.cholesky, with_jitter)), amount
        except np.linalg.LinAlgError:
            continue
    raise UserError(f"no class covariance is positive definite with jitter {amount:g}; give a larger one")


def _ladder(covariances: Iterator[np.ndarray]) -> list[float]:
    scale = float(np.mean([np.diag(c).mean() for c in covariances])) or 1.0
    return [0.0] + [float(np.finfo(float).eps) * scale * 10.0**k for k in range(18)]


def inverses(factor: np.ndarray) -> list[np.ndarray]:
    """The inverses X of a lower triangular matrix's blocks B on the diagonal, for `whiten`.

    X·B is the identity up to rounding, so that a product with X loses no more digits than substitution (Higham, 2002,
    chapter 14).
    """
    blocks = (factor[i : i + _COLUMNS, i : i + _COLUMNS] for i in range(0, len(factor), _COLUMNS))
    return [scipy.linalg.solve_triangular(b, np.eye(len(b)), lower=True, trans=1, check_finite=False).T for b in blocks]


def whiten(x: np.ndarray, factor: np.ndarray, inverses: list[np.ndarray]) -> None:
    """Puts L⁻¹x in place of each row x: forward substitution in halves, by products, which threads can share."""
    if len(inverses) == 1:
        x[:] = x @ inverses[0].T
        return
    half = len(inverses) // 2
    first, second = slice(half * _COLUMNS), slice(half * _COLUMNS, None)
    whiten(x[:, first], factor[first, first], inverses[:half])
    x[:, second] -= x[:, first] @ factor[second, first].T
    whiten(x[:, second], factor[second, second], inverses[half:])


def percentiles(training: Training, percents: list[float]) -> np.ndarray:
    """Percentiles of all feature entries together, as `np.percentile` gives them, without sorting or keeping them.

    Two passes over float32 features (four over float64): each counts 16 more bits of the order statistics wanted.
    """
    dtype, count = np.dtype(np.float32), 0
    for block, _ in training.blocks(checked=False):
        dtype, count = np.promote_types(dtype, block.features.dtype), count + block.features.size
    positions = [percent / 100.0 * (count - 1) for percent in percents]
    ranks = sorted({int(p) for p in positions} | {min(int(p) + 1, count - 1) for p in positions})
    found = dict(zip(ranks, _order_statistics(training, ranks, dtype), strict=True))
    low = [found[int(p)] for p in positions]
    high = [found[min(int(p) + 1, count - 1)] for p in positions]
    return np.array([a + (b - a) * (p - int(p)) for a, b, p in zip(low, high, positions, strict=True)])


def _order_statistics(training: Training, ranks: list[int], dtype: np.dtype) -> list[float]:
    """The entries of these ranks (0 = smallest), digit by digit of their bits."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    top = dtype.itemsize * 8 - 16
    prefixes, left = [0] * len(ranks), list(ranks)
    for shift in range(top, -1, -16):
        known = sorted(set(prefixes))

        def of_block(block: Outputs, _: Any, shift: int = shift, known: list[int] = known) -> list[np.ndarray]:
            counts = [np.zeros(1 << 16, np.int64) for _ in known]
            bits = np.ascontiguousarray(block.features, dtype).reshape(-1).view(unsigned)
            # So few at once that they stay in a core's cache.
            for start in range(0, len(bits), _ENTRIES):
                some = bits[start : start + _ENTRIES]
                for prefix, histogram in zip(known, counts, strict=True):
                    chosen = some if shift == top else some[some >> (shift + 16) == prefix]
                    histogram += np.bincount((chosen >> shift & 0xFFFF).astype(np.intp), minlength=1 << 16)
            return counts

        counts = dict(zip(known, totals(training, of_block), strict=True))
        for i, prefix in enumerate(prefixes):
            digits = _ascending(None if shift == top else bool(prefix >> (top - shift - 1)))
            cumulated = counts[prefix][digits].cumsum()
            place = int(np.searchsorted(cumulated, left[i], side="right"))
            left[i] -= int(cumulated[place - 1]) if place else 0
            prefixes[i] = prefix << 16 | int(digits[place])
    return [float(np.array([prefix], unsigned).view(dtype)[0]) for prefix in prefixes]


def _ascending(negative: bool | None) -> np.ndarray:
    """16 bits of floats by the floats' order: that of negative ones falls.  None: of the first bits, with the sign."""
    rising = np.arange(1 << 16)
    if negative is None:
        half = len(rising) // 2
        return np.concatenate([rising[: half - 1 : -1], rising[:half]])
    return rising[::-1] if negative else rising


def require_percentiles(*percents: float) -> None:
    """Raises a UserError unless they are percentiles, in order."""
    if not all(0.0 <= p <= 100.0 for p in percents) or list(percents) != sorted(percents):
        raise UserError(f"percentiles {list(percents)}; expected numbers from 0 to 100, in order")
