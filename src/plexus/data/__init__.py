"""Data sets and traces of others: known, fetched, imported, checked."""
