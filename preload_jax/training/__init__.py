"""Training: data at rest, augmentation, steps, and the resumable loop."""
