"""Prepared data sets: TFDS data sets made and read without TensorFlow, and NumPy files."""
