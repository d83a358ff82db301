"""ZRE: the discovery protocol."""
