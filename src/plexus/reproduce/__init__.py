"""Figures and tables of the paper, at a size that fits the machine at hand.

Nothing is imported here: `plexus --help` looks into this package to see what there is.
"""
