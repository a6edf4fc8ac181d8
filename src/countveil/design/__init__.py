"""From a question about epsilon, delta, eta and D to a certified Mechanism.

dispatch         `design` and `make_nonnegative`, and the choice of the designer for a request
request          the arguments of a design: checked, and assigned to one of the questions
signed           the designer for policies signed and floor: noise that does not depend on n
closed_form      the law of least delta of noise that does not depend on n, in closed form
paper            the paper's closed form, and where it fails
whole_domain     the designer for policy nonnegative, method program: a law for each count, by linear program
column_program   the linear programs of `whole_domain` and `signed`
remap            the designer for policy nonnegative, method remap: a signed law followed by a map
"""

from countveil.design.dispatch import design, make_nonnegative

__all__ = ["design", "make_nonnegative"]
