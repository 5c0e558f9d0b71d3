"""The protocols, pure: no I/O, no clock, no tensors, no logging, no global state."""
