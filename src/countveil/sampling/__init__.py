"""Exact draws of the noise; no other package reads random bits.

randomness     the only importer of randomness: keyed streams of random bits, in which every cell has its own place
sampler        which uniform integer gives which noise; draws for one count and for vectors
count_arrays   releases of lists, arrays and columns; the result has the type of the input
"""
