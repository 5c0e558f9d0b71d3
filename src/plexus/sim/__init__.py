"""Virtual time: the same nodes as in a deployment, with a simulated clock, network and devices."""
