"""PreLoad for JAX: classifiers that say "I don't know" far from their training data."""

__version__ = "0.1.0"
