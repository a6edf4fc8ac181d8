"""Drawing noise.

entropy    the only door to randomness: keyed streams with an address for every cell
draw       which uniform integer gives which noise; exact draws for one count and for vectors
"""
