"""Readers of the official file formats of the data sets. They know files, not tasks."""
