"""Mechanisms of the literature, measured by the same exact code as ours.

member            a member of a family: its laws, and how far they are from the ideal ones
geometric         the two-sided geometric law (discrete Laplace), truncated, folded, rounded
canonical         the discrete canonical noise: the least noise for one signed count
gaussian          the discrete Gaussian, whole and truncated
offset_gaussian   the offset-symmetric Gaussian, between Gaussian and geometric
bounded           truncated Laplace, Laplace on a bounded domain, the bounded law for many queries
renyi             Renyi-optimal and Cactus laws, optimised for many answers
skellam           Skellam noise, for sums that many parties make noisy
finite_set        the optimal noise modulo the number of possible counts, for few counts
unbiased          an unbiased count by post-processing the geometric law
staircase         the discrete staircase, for people who change a count by more than one
fair              the explicit fair mechanism
maximum_entropy   p-tables of maximum entropy, as R's package ptable makes them
entropy           the law of maximum entropy on finitely many points
"""
