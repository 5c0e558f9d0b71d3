"""Engines carry out trainings: the same weights from all of them, at different speeds."""
