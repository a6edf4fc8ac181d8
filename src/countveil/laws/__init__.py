"""Laws of the noise, as integer weights, and their exact privacy. Integers and Fractions only: no floats.

law        the law of the noise for one true count, and the laws for every count n = 0, 1, 2, ...
remap      never-negative counts: a signed law followed by a fixed random map
privacy    the exact delta of laws for neighbouring counts
rounding   from real proposals to integer weights, keeping sums, eta and zero bias exact
"""
