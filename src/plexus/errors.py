"""The one error a user can mend: its text is a single line that names the thing at fault."""


class PlexusError(ValueError):
    """Bad input: a key, a value, a file. The command line prints it and exits with 2."""
