"""Figures and tables of the paper, at a size that fits the machine at hand.

The package is also the function of this name in the Python API: `plexus.reproduce("fig3", size="tiny")`
works whether or not somebody has imported one of its modules before, which puts the package in that place.
Nothing is imported here: `plexus --help` looks into this package to see what there is.
"""

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from plexus.reproduce.reproducing import reproduce

        return reproduce(*arguments, **options)


sys.modules[__name__].__class__ = _Package
