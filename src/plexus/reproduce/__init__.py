"""Figures and tables of the paper, at a size that fits the machine at hand."""

from plexus.reproduce.reproducing import reproduce

__all__ = ["reproduce"]
