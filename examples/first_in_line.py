"""A variation of Plexus: the aggregator is the first of its sample in hash order, whatever its bandwidth."""

import plexus


class FirstInLine(plexus.PlexusNode):
    def aggregator_rank(self, node):
        return 0  # all alike: the first of the sample


first_in_line = plexus.own_protocol(FirstInLine)
