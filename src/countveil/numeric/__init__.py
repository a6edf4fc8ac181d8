"""Exact numbers, and the linear programs that propose them. Nothing here depends on privacy.

exact_numbers    decimal input, bounds on e^epsilon, decimals with a stated direction of rounding
search           the least integer or number at which a condition holds; the root of a function
linear_program   linear programs solved far beyond double precision
"""
