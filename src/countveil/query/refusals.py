"""How a refused word is called, and what to write instead."""

from __future__ import annotations

from countveil.errors import QueryError, shortened
from countveil.query.tokens import Token

_CONSTRUCTS = {
    "JOIN": ("a join", "one dataset is asked at a time"),
    "UNION": ("a set operation", "ask each question alone"),
    "EXCEPT": ("a set operation", "ask each question alone"),
    "INTERSECT": ("a set operation", "ask each question alone"),
    "WITH": ("a common table expression", "ask the dataset itself"),
    "HAVING": ("HAVING", "every cell of the public domain is answered; filter the answer"),
    "ORDER": ("ORDER BY", "cells come in the declared order; sort the answer"),
    "LIMIT": ("LIMIT", "every cell of the public domain is answered"),
    "OFFSET": ("OFFSET", "every cell of the public domain is answered"),
    "FETCH": ("FETCH", "every cell of the public domain is answered"),
    "SAMPLE": ("a sample", "all rows are counted"),
    "TABLESAMPLE": ("a sample", "all rows are counted"),
    "USING": ("USING", "one dataset is asked at a time"),
    "QUALIFY": ("QUALIFY", "put the condition in WHERE"),
    "WINDOW": ("a window", "count(*) stands alone"),
    "OVER": ("a window", "count(*) stands alone"),
    "FILTER": ("FILTER", "put the condition in WHERE"),
    "LIKE": ("LIKE", "write IN ('value', ...)"),
    "ILIKE": ("ILIKE", "write IN ('value', ...)"),
    "SIMILAR": ("SIMILAR TO", "write IN ('value', ...)"),
    "GLOB": ("GLOB", "write IN ('value', ...)"),
    "REGEXP": ("a pattern match", "write IN ('value', ...)"),
    "CASE": ("CASE", "join conditions with AND, OR, NOT"),
    "CAST": ("a cast", "literals take the declared type of their column"),
    "TRY_CAST": ("a cast", "literals take the declared type of their column"),
    "EXISTS": ("a subquery", "ask one question at a time"),
    "SELECT": ("a subquery", "ask one question at a time"),
    "ALL": ("ALL", "name the columns"),
    "ANY": ("ANY", "write IN (literal, ...)"),
    "SOME": ("SOME", "write IN (literal, ...)"),
    "COLLATE": ("COLLATE", "text is compared by its characters"),
    "NULL": ("a comparison with NULL", "write IS NULL or IS NOT NULL"),
    "DISTINCT": ("DISTINCT", "write count(DISTINCT unit) with the column that identifies a person"),
    "TIMESTAMP": ("a time stamp", "write DATE '2026-01-31'"),
    "INTERVAL": ("an interval", "write DATE '2026-01-31'"),
    "XOR": ("XOR", "join conditions with AND, OR, NOT"),
    "INSERT": ("a statement other than SELECT", "the data cannot be changed"),
    "UPDATE": ("a statement other than SELECT", "the data cannot be changed"),
    "DELETE": ("a statement other than SELECT", "the data cannot be changed"),
}
_JOINS = (
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "CROSS",
    "NATURAL",
    "OUTER",
    "LATERAL",
    "POSITIONAL",
    "ASOF",
    "SEMI",
    "ANTI",
)


def refusal(token: Token, allowed: str) -> QueryError:
    """The refusal of a token where the grammar wanted something else."""
    word = token.word
    if word in _CONSTRUCTS:
        return QueryError(*_CONSTRUCTS[word], token.at)
    if word in _JOINS:
        return QueryError(*_CONSTRUCTS["JOIN"], token.at)
    if token.kind == "end":
        return QueryError("the query stops too early", allowed, token.at)
    if token.kind == "symbol" and token.value == ";":
        return QueryError("a second statement", "one question at a time", token.at)
    if token.kind == "symbol" and token.value in "*-":
        return QueryError("arithmetic or *", allowed, token.at)
    what = {"text": "the text", "integer": "the number", "quoted": "the name"}.get(token.kind, "the word")
    if token.kind == "symbol":
        what = "the symbol"
    return QueryError(f"{what} {shortened(token.value, 40)}", allowed, token.at)
