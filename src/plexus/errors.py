"""The one error a user can mend: its text is a single line that names the thing at fault."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PlexusError(ValueError):
    """Bad input: a key, a value, a file. The command line prints it and exits with its `exit_code`."""

    exit_code = 2


class MissingDataError(PlexusError):
    """A data set is not on this machine; the text says how to get it."""


class MissingModuleError(PlexusError):
    """A module of the user's own is not in the folder where it was looked for, nor installed."""


class TaskError(PlexusError):
    """Code of the user's own failed as it ran."""

    exit_code = 1


class RevokedError(PlexusError):
    """This node's certificate has been revoked. To start it again is of no use: service managers can tell."""

    exit_code = 77  # EX_NOPERM of sysexits.h


EXTRAS = {
    "report": ("matplotlib",),
    "dashboard": ("starlette", "uvicorn"),
    "cluster": ("ray",),
    "frames": ("pandas", "polars"),
    "images": ("pillow",),
    "lora": ("peft", "transformers"),
}
"""What else can be installed with Plexus, and the packages that come with it."""


@contextmanager
def needing(user: str) -> Iterator[None]:
    """Let a module that is imported here and not installed be one line: who needs it, and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise PlexusError(missing(error.name or str(error), user)) from None


def missing(module: str, user: str) -> str:
    """What to say of a module that is not installed."""
    return f"{user} needs the Python module {module}, which is not installed{remedy(module)}"


def remedy(module: str) -> str:
    """The end of such a line: what to do about it, where it comes with an extra."""
    package = {"PIL": "pillow"}.get(module, module)
    extras = (extra for extra, packages in EXTRAS.items() if package in packages)
    return next((f": pip install 'plexus-learning[{extra}]'" for extra in extras), "")


class Interrupted(Exception):  # noqa: N818  (not an error: somebody pressed Ctrl-C)
    """A command stopped early because it was told to; its text says how far it came."""


class StopRun(Exception):  # noqa: N818  (not an error: somebody has seen enough)
    """Raise it in a callback of `plexus.simulate` to end the run there, as Ctrl-C would."""


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Let whatever the user's code raises be one line, which begins with `what` and says where."""
    try:
        yield
    except PlexusError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"{what}: {described(error)}") from error


def described(error: BaseException) -> str:
    """An exception on one line, with the innermost line of the user's own code that led to it."""
    reason = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    frames = traceback.extract_tb(error.__traceback__)
    known = [frame for frame in frames if not _is_ours_or_pythons(frame.filename)]
    own = [frame for frame in known if not frame.filename.startswith(_INSTALLED)] or known
    if not own:
        return reason
    path = Path(own[-1].filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{reason} ({shown}:{own[-1].lineno}, in {own[-1].name})"


_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def _is_ours_or_pythons(file: str) -> bool:
    is_pythons = file.startswith(sysconfig.get_path("stdlib")) and not file.startswith(_INSTALLED)
    return file.startswith((str(Path(__file__).parent), "<")) or is_pythons
