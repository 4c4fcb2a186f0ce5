"""Whether compiled code computes what a framework does, and where not, which layer begins it."""
