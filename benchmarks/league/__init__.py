"""A league: the same federated averaging done by Plexus, by its peers and by hand, measured side by side.

`python -m benchmarks.league` makes environments for the peers, measures, and writes docs/league.md.
"""
