"""Real text that every machine has, what Python's modules say of themselves: python examples/text/collect.py

Every module is an owner, with a text of its own: data/OWNER.txt.
"""

import importlib
import inspect
from pathlib import Path

DATA = Path(__file__).with_name("data")
OWNERS = (
    "argparse", "asyncio", "collections", "datetime", "decimal", "logging", "pathlib", "random", "socket",
    "statistics", "threading", "unittest",
)  # fmt: skip


def text_of(name):
    """What is written in a module about it, its classes and their methods."""
    module = importlib.import_module(name)
    found = [inspect.getdoc(module)]
    for _, each in sorted(inspect.getmembers(module)):
        if inspect.isclass(each) or inspect.isroutine(each):
            found.append(inspect.getdoc(each))
        if inspect.isclass(each):
            found += [inspect.getdoc(own) for _, own in sorted(vars(each).items()) if inspect.isroutine(own)]
    return "\n".join(dict.fromkeys(text for text in found if text))


def main():
    DATA.mkdir(exist_ok=True)
    for owner in OWNERS:
        (DATA / f"{owner}.txt").write_text(text_of(owner))
    print(f"texts of {len(OWNERS)} owners are in {DATA}")


if __name__ == "__main__":
    main()
