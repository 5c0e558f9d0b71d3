"""Bytes from outside: every reader, what it may be given, and how it may refuse."""
