"""Data sets as NumPy arrays: in-domain sets, OOD test sets, auxiliary outliers, noise and shifts.

Images are NHWC. At rest they are uint8 in [0, 255]; noise that has no uint8 form (uniform, FarAway) is float32.
`datasets` is the door: everything that training and evaluation need is there.
"""
