"""The work in the words of each contender: one module each, run in that contender's environment."""
