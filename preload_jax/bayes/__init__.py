"""A little Bayes: the last layer's posterior by a Laplace approximation, and what it predicts.

`fit_laplace` makes a trained classifier Bayesian in its last layer, and `fit_rgpr` adds a variance that outgrows it far
away.  MC dropout and deep ensembles are in `models`:
`MCDropout` and `ensemble`.  All are classifiers like any other.
"""

from preload_jax.bayes.laplace import Laplace, posterior
from preload_jax.bayes.network import fit_laplace
from preload_jax.bayes.rgpr import Spline, fit_rgpr, spline

__all__ = ["Laplace", "Spline", "fit_laplace", "fit_rgpr", "posterior", "spline"]
