"""Command lines over the library: recipes, runs, data preparation."""
