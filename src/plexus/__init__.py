"""Plexus: train one model across many unreliable devices, with no server."""

__version__ = "0.1.0"
