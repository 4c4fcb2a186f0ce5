"""From a graph and a memory plan to C."""
