"""Figures and tables of the paper, at a size that fits the machine at hand.

The package is also the function of this name in the Python API: `plexus.reproduce("fig3", size="tiny")`
works whether or not somebody has imported one of its modules before, which puts the package in that place.
"""

import sys
from types import ModuleType

from plexus.reproduce.reproducing import reproduce

__all__ = ["reproduce"]


class _Package(ModuleType):
    __call__ = staticmethod(reproduce)


sys.modules[__name__].__class__ = _Package
