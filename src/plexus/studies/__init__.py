"""Figures and tables of the paper, at a size that fits the machine at hand: `plexus reproduce`."""
