"""MovieLens' ratings.csv: userId,movieId,rating,timestamp, with either kind of line end."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.learn.tasks.folder import needed_file

COLUMNS = ["userId", "movieId", "rating", "timestamp"]


@dataclass(frozen=True)
class Ratings:
    """One row per rating. Users and movies are numbered from 0 in the order of their ids."""

    users: NDArray[np.int64]
    movies: NDArray[np.int64]
    stars: NDArray[np.float32]
    user_count: int
    movie_count: int


def read_ratings(folder: Path) -> Ratings:
    """The ratings of a MovieLens folder."""
    path = needed_file(folder, "ratings.csv", what="a MovieLens folder has its ratings there")
    try:
        ratings = _read(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise PlexusError(f"{path} is damaged: {error}") from None
    if not ratings:
        raise PlexusError(f"{path} has no ratings")
    user_ids, movie_ids, stars = zip(*ratings, strict=True)
    user_names, users = np.unique(np.array(user_ids), return_inverse=True)
    movie_names, movies = np.unique(np.array(movie_ids), return_inverse=True)
    return Ratings(users, movies, np.array(stars, np.float32), len(user_names), len(movie_names))


def _read(path: Path) -> list[tuple[int, int, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if next(rows, None) != COLUMNS:
            raise PlexusError(f"{path} does not begin with the line {','.join(COLUMNS)}")
        return [_rating(path, number, row) for number, row in enumerate(rows, start=2) if row]


def _rating(path: Path, line: int, row: list[str]) -> tuple[int, int, float]:
    try:
        user, movie, stars, _ = row
        return int(user), int(movie), float(stars)
    except ValueError:
        raise PlexusError(f"{path}, line {line}: {','.join(row)!r} is not a rating") from None
