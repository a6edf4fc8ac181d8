"""Drawing noise.

entropy    the only door to randomness: keyed streams with an address for every cell
outcome    the definition of a draw: which uniform integer gives which noise
guide      two bytes that settle almost every draw
draw       exact draws for one count and for vectors
"""
