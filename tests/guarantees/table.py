"""The table of backbones in the documentation: verdicts, and the largest difference from float64 far out.

    python -m tests.guarantees.table

prints it as Markdown.
"""

import re
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError
from preload_jax.guarantees import germs
from tests.guarantees.backbones import BACKBONES, REFUSED
from tests.toy import enable_x64

RAYS = 300
DISTANCES = (1e6, 1e9, 1e12)


def rows() -> Iterator[str]:
    """Of networks with a germ, and then of those that are refused."""
    rng = np.random.default_rng(0)
    yield f"| backbone | powers kept | undecided of {RAYS} | difference at t = 1e6, 1e9, 1e12 | seconds |"
    yield "|---|---|---|---|---|"
    for name, (shape, function) in BACKBONES.items():
        u, u0 = rng.normal(size=(RAYS, *shape)), rng.uniform(size=(RAYS, *shape))
        u, u0 = u.astype(np.float32), u0.astype(np.float32)
        start = time.process_time()
        (found,) = germs.ray_germs(function, u, origins=u0, batch_size=RAYS)
        seconds = time.process_time() - start
        decided = found.order < 0
        differences = ", ".join(f"{_difference(found, function, u, u0, t)[decided].max():.0e}" for t in DISTANCES)
        powers = ", ".join(str(p) for p in sorted(found.terms, reverse=True))
        yield f"| {name} | {powers} | {int((~decided).sum())} | {differences} | {seconds:.1f} |"
    yield ""
    yield "| refused | because it |"
    yield "|---|---|"
    for name, (function, _) in REFUSED.items():
        try:
            germs.ray_germs(function, np.array([[1.0, 1.0], [-1.0, -1.0]], np.float32))
        except UserError as error:
            reason = re.sub(r" at \S+ \(<lambda>\)", "", str(error))
            yield f"| {name} | {reason.split(';')[0].split(', first')[0]} |"


def _difference(found: germs.RayGerms, function, u: np.ndarray, u0: np.ndarray, t: float) -> np.ndarray:
    """Relative to the output's largest element, or to 1."""
    with enable_x64(True):
        exact = np.asarray(jax.jit(function)(jnp.asarray(u0.astype(np.float64) + t * u.astype(np.float64))))
    exact, guess = exact.reshape(len(u), -1), found.at(t).reshape(len(u), -1)
    return np.abs(exact - guess).max(axis=1) / (1.0 + np.abs(exact).max(axis=1))


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
