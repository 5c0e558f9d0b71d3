"""The one error a user can mend: its text is a single line that names the thing at fault."""


class PlexusError(ValueError):
    """Bad input: a key, a value, a file. The command line prints it and exits with 2."""


class StopRun(Exception):  # noqa: N818  (not an error: somebody has seen enough)
    """Raise it in a callback of `plexus.simulate` to end the run there, as Ctrl-C would."""
