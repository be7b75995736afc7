"""Readers of published formats and of folders of images. A damaged file is a `DataError` that names it."""
