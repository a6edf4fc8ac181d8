"""Drawing noise: `entropy` is the only door to randomness, `draw` turns uniform integers into noise."""
