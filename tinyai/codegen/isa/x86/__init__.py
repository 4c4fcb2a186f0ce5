"""x86-64: what its instruction sets have in common."""
