"""`python -m plexus` is `plexus`."""

from plexus.cli import main

if __name__ == "__main__":
    main()
