"""A little Bayes: the last layer's posterior by a Laplace approximation, and what it predicts.

`fit_laplace` makes a trained classifier Bayesian in its last layer.  MC dropout and deep ensembles are in `models`:
`MCDropout` and `ensemble`.  All three are classifiers like any other.
"""

from preload_jax.bayes.laplace import Laplace, posterior
from preload_jax.bayes.network import fit_laplace

__all__ = ["Laplace", "fit_laplace", "posterior"]
