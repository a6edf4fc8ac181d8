"""Linear programs solved far beyond double precision, with HiGHS doing the pivoting.

program       a program, and the refinement of its solutions; explains the method
fixed_point   a program in fixed point, and its solutions with exact measures of their violations
highs         HiGHS, which pivots in doubles
"""

from countveil.numeric.linear_program.fixed_point import Solution
from countveil.numeric.linear_program.highs import NoSolution
from countveil.numeric.linear_program.program import Program

__all__ = ["NoSolution", "Program", "Solution"]
