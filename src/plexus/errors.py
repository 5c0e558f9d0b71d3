"""The one error a user can mend: its text is a single line that names the thing at fault."""


class PlexusError(ValueError):
    """Bad input: a key, a value, a file. The command line prints it and exits with 2."""


class MissingDataError(PlexusError):
    """A data set is not on this machine; the text says how to get it."""


class MissingModuleError(PlexusError):
    """A module of the user's own is not in the folder where it was looked for, nor installed."""


class Interrupted(Exception):  # noqa: N818  (not an error: somebody pressed Ctrl-C)
    """A command stopped early because it was told to; its text says how far it came."""


class StopRun(Exception):  # noqa: N818  (not an error: somebody has seen enough)
    """Raise it in a callback of `plexus.simulate` to end the run there, as Ctrl-C would."""
