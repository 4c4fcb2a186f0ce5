"""How a model is divided between tinyai and a host, and why: on expressions of the vocabulary, for
every front end. Knows no framework."""
