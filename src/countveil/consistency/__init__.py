"""Tables that add up, whole and never negative, from noisy measurements of a tree of tables.

tree            levels, nodes, families and structural zeros; from arrays of parents
hierarchy       trees from columns: which table is coarser than which, which are missing, which cross
bounds          bounds that always contain the true count, because the noise is bounded
least_squares   unbiased estimates with exact variances, in two passes
rounding        whole numbers within the bounds, nearest to the estimates
unbiased        whole numbers whose mean is exactly the estimate
uniforms        uniform integers for random rounding
simulation      quantiles of the errors of estimates
family_sums     sums of the noise of whole families, drawn at once
sums            sums of cells, in the tree or across it
gaps            by how much sums of published cells will exceed true sums, if the counts are as publicly guessed
split           how to divide a budget among the tables
frames          measurements from frames, and tables as frames
reconciler      what is fixed before any measurement: laws, weights, margins
reconciliation  the results

Everything here is post-processing of measurements that are private already. So it costs no privacy, and needs only the
measurements, the public tree and the laws of the noise. It knows no source of data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from countveil.consistency.reconciler import LawsOfTables, Reconciler
from countveil.consistency.reconciliation import Reconciliation
from countveil.consistency.simulation import Progress
from countveil.consistency.tree import Tree
from countveil.errors import ParameterError

__all__ = ["reconcile"]

Estimate = Literal["nearest", "unbiased"]
"""What is published: never negative counts nearest to the estimates, or counts whose mean is exactly the estimate."""


def reconcile(
    tree: Tree,
    measurements: Mapping[str, Any],
    laws: LawsOfTables,
    *,
    estimate: Estimate = "nearest",
    progress: Progress = iter,
) -> Reconciliation:
    """Tables that add up, from measurements with bounded noise: whole, never negative, with certain bounds.

    Args:
        tree: The tree of tables.
        measurements: For each measured table its noisy counts, negative ones included: an array in the order of its
            cells, or a frame with its labels and a column `count`. Tables that are left out are not measured.
        laws: The law of the noise of each measured table, or a mechanism of policy signed; or one for all tables.
        estimate: "nearest": never negative, within the certain bounds. "unbiased": the mean of every count is exactly
            the unbiased estimate; counts may be negative.
        progress: Wraps the numbers of steps, to show progress.

    Returns:
        A Reconciliation: for every table its counts, intervals and certain bounds.

    Raises:
        ParameterError: A table, a measurement or a law is not allowed.
        RequestError: A table that no finer table divides is not measured, or no tables fit the measurements.

    >>> import countveil as cv
    >>> tree = cv.Tree.from_parents({"county": (None, [0, 0]), "town": ("county", [0, 0, 1, 1])})
    >>> law = cv.design(epsilon="1", delta="1e-6", policy="signed")
    >>> result = reconcile(tree, {"county": [101, 3], "town": [58, 40, 4, -3]}, law)
    >>> towns, counties = result["town"].count, result["county"].count
    >>> bool(towns[:2].sum() == counties[0]), bool((towns >= 0).all()), bool(result["total"].count == counties.sum())
    (True, True, True)
    """
    if not isinstance(tree, Tree):
        raise ParameterError("tree", type(tree).__name__, "a Tree, from Tree.from_columns or Tree.from_parents")
    if not isinstance(measurements, Mapping):
        raise ParameterError("measurements", type(measurements).__name__, "a mapping of the names of tables to counts")
    if estimate not in get_args(Estimate):
        raise ParameterError("estimate", estimate, "one of " + ", ".join(get_args(Estimate)))
    fixed = Reconciler.of(tree, laws, tuple(measurements))
    return fixed.reconcile(measurements, estimate=estimate, progress=progress)
