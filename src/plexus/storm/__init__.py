"""Storms: what networks and devices do to a session, drawn from a seed and played on the real simulator."""
