"""What is fixed before any measurement: the tree, the laws, the weights of least squares, the margins of every cell.

One Reconciler serves a dry run, a publication and its later editions: margins depend only on the public tree and the
laws, and are simulated once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.consistency.bounds import CertainBounds, bound_counts, find_reference
from countveil.consistency.frames import read_measurement
from countveil.consistency.least_squares import LeastSquares, solve
from countveil.consistency.reconciliation import Reconciliation, collect
from countveil.consistency.rounding import round_tables
from countveil.consistency.simulation import OUTWARD, Progress, Quantiles, Simulation
from countveil.consistency.tree import Floats, Ints, Tree
from countveil.consistency.unbiased import round_exactly
from countveil.consistency.uniforms import KeySource, Uniforms
from countveil.errors import ParameterError
from countveil.laws.law import Law, LawsByCount
from countveil.mechanism.mechanism import Mechanism

LawsOfTables = Mapping[str, Law | Mechanism] | Law | Mechanism
"""The law of the noise (or a mechanism) of each measured table by name, or one for all tables."""


@dataclass(eq=False)
class Reconciler:
    """What a reconciliation needs besides the measurements, all of it public; make one with `of`."""

    tree: Tree
    fit: LeastSquares
    laws: tuple[Law | None, ...]
    simulation: Simulation
    keys: KeySource
    quantiles: Quantiles | None = None

    @staticmethod
    def of(tree: Tree, laws: LawsOfTables, measured: Sequence[str], seed: bytes | None = None) -> Reconciler:
        """The reconciler of a tree whose tables `measured` are measured with noise of these laws.

        With a seed, the same measurements are always reconciled to the same tables.
        """
        unknown = [name for name in measured if name not in tree.names]
        if unknown:
            raise ParameterError("measurements", unknown[0], "a table of the tree: " + ", ".join(tree.names))
        noise = tuple(read_law(name, laws) if name in measured else None for name in tree.names)
        fit = solve(tree, [None if law is None else float(law.variance) for law in noise])
        rounding, runs = (KeySource(None if seed is None else use + seed) for use in (b"rounding", b"runs"))
        return Reconciler(tree, fit, noise, Simulation.of(fit, noise, runs), rounding)

    def simulate(self, progress: Progress = iter) -> Quantiles:
        """The margins of all nodes; they are simulated at the first call, and kept."""
        if self.quantiles is None:
            self.quantiles = self.simulation.quantiles(progress)
        return self.quantiles

    def margins(self, table: str, progress: Progress = iter) -> Floats:
        """The 95 % margin of the estimate of every cell of a table, 0 for structural zeros."""
        place = self.tree.place(table)
        return self.tree.levels[place].restore(self.simulate(progress).margins[place] * OUTWARD)

    def reconcile(
        self, measurements: Mapping[str, Any], *, estimate: str = "nearest", progress: Progress = iter
    ) -> Reconciliation:
        """Make tables that add up from the measurements of all measured tables."""
        given = self.read(measurements)
        bounds, reference, estimates = self.bound_and_estimate(given)
        uniform = None
        if estimate == "unbiased":
            published, uniform = round_exactly(self.fit, given, Uniforms(self.keys.next()))
        else:
            published = list(round_tables(self.fit, estimates, reference, bounds, Uniforms(self.keys.next())))
        quantiles = self.simulate(progress)
        return collect(self.tree, self.simulation, quantiles, reference, estimates, bounds, published, uniform)

    def bound_and_estimate(self, given: Sequence[Ints | None]) -> tuple[CertainBounds, list[Ints], list[Floats]]:
        """The certain bounds, some whole tables within them (the reference), and the estimates minus this reference."""
        bounds = bound_counts(
            self.tree, given, [None if law is None else (law.least, law.greatest) for law in self.laws]
        )
        reference = find_reference(self.tree, bounds)
        differences = [
            None if y is None else (y - base).astype(np.float64) for y, base in zip(given, reference, strict=True)
        ]
        return bounds, reference, self.fit.estimate(differences)

    def read(self, measurements: Mapping[str, Any]) -> list[Ints | None]:
        """The measurements of every table in the order of its nodes; None for a table that is not measured."""
        given: list[Ints | None] = []
        for level, law in zip(self.tree.levels, self.laws, strict=True):
            if law is not None and level.name not in measurements:
                names = ", ".join(measurements) or "none"
                raise ParameterError("measurements", names, f"one for each measured table; {level.name} is missing")
            given.append(None if law is None else level.select(read_measurement(level, measurements[level.name])))
        return given


def read_law(name: str, laws: LawsOfTables) -> Law:
    """The law of the noise of a table, checked: the same for every count, with mean zero and some variance."""
    given: object = laws
    if isinstance(laws, Mapping):
        if name not in laws:
            raise ParameterError("laws", f"no law for {name}", "a mapping with a law for every measured table")
        given = laws[name]
    if isinstance(given, Mechanism):
        family = given.laws
        if given.policy != "signed" or not isinstance(family, LawsByCount) or family.small or family.top or family.lo:
            raise ParameterError(
                f"law of {name}", given, "a mechanism of policy signed, whose noise is the same for every count"
            )
        given = family.stationary
    if not isinstance(given, Law):
        raise ParameterError(f"law of {name}", type(given).__name__, "a Law, or a Mechanism of policy signed")
    if given.mean or not given.variance:
        shown = f"a law of mean {float(given.mean):.6g} and variance {float(given.variance):.6g}"
        raise ParameterError(f"law of {name}", shown, "a law of mean 0 and a variance above 0")
    return given
