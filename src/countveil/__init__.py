"""countveil: publish counts that protect the people counted.

import countveil as cv
m = cv.design(epsilon="1", delta="1e-6")
m.eta, m.D, m.delta, m.certificate
m.release(1234)
"""

from countveil.accounting import answers_within, compose, plan
from countveil.comparison import Comparison, compare
from countveil.design import design
from countveil.errors import (
    CertificateError,
    CountveilError,
    InfeasibleError,
    MissingExtraError,
    ParameterError,
    RequestError,
)
from countveil.mechanism import Mechanism
from countveil.plots import plot

__version__ = "0.1.0"

__all__ = [
    "CertificateError",
    "Comparison",
    "CountveilError",
    "InfeasibleError",
    "Mechanism",
    "MissingExtraError",
    "ParameterError",
    "RequestError",
    "__version__",
    "answers_within",
    "compare",
    "compose",
    "design",
    "plan",
    "plot",
]
