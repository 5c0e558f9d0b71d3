"""Engines carry out trainings: the same weights from all of them, at different speeds."""

from plexus.learn.engines.choice import ENGINES, Chosen, choose, create_engine

__all__ = ["ENGINES", "Chosen", "choose", "create_engine"]
