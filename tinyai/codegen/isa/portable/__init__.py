"""Portable C, for every machine: the compiler's vectors, if any."""
