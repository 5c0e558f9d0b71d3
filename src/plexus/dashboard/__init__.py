"""Looking at runs and live fleets in a browser: read-only, from this machine, with nothing fetched."""
