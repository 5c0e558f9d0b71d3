"""The paper, sentence by sentence: one test for each that says what a node does or must not do.

Sections III-C to III-F in reading order. A docstring names the section and says in our own words what the
sentence asks for. Sentences that only motivate, cite or describe experiments have no test.
"""
