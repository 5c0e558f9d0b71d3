"""Where devices, availability and latency come from: recorded traces and generated ones."""
