"""A run: its recipe and configuration, its folder, its results, and the paper's protocol and numbers."""
