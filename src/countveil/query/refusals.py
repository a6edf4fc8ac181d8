"""Error messages for SQL that the language does not have: the name of the construct, and what to write instead."""

from __future__ import annotations

from countveil.errors import QueryError, shorten
from countveil.query.expression import Name
from countveil.query.tokens import A_COLUMN, ARITHMETIC, HISTOGRAM, STATISTICS, Token

_CONSTRUCTS = {
    "JOIN": ("a join", "ask about one dataset at a time"),
    "UNION": ("a set operation", "ask each question separately"),
    "EXCEPT": ("a set operation", "ask each question separately"),
    "INTERSECT": ("a set operation", "ask each question separately"),
    "WITH": ("a common table expression", "write FROM and the name of one dataset"),
    "HAVING": ("HAVING", "the answer has every cell of the public domain; filter the answer"),
    "ORDER": ("ORDER BY", "cells come in the declared order; sort the answer"),
    "LIMIT": ("LIMIT", "remove it: the answer has every cell of the public domain"),
    "OFFSET": ("OFFSET", "remove it: the answer has every cell of the public domain"),
    "FETCH": ("FETCH", "remove it: the answer has every cell of the public domain"),
    "SAMPLE": ("a sample", "all rows are counted"),
    "TABLESAMPLE": ("a sample", "all rows are counted"),
    "USING": ("USING", "ask about one dataset at a time"),
    "QUALIFY": ("QUALIFY", "put the condition in WHERE"),
    "WINDOW": ("a window function", "write count(*) alone"),
    "OVER": ("a window function", "write count(*) alone"),
    "FILTER": ("FILTER", "put the condition in WHERE"),
    "LIKE": ("LIKE", "write IN ('value', ...)"),
    "ILIKE": ("ILIKE", "write IN ('value', ...)"),
    "SIMILAR": ("SIMILAR TO", "write IN ('value', ...)"),
    "GLOB": ("GLOB", "write IN ('value', ...)"),
    "REGEXP": ("a pattern match", "write IN ('value', ...)"),
    "CASE": ("CASE", f"join conditions with AND, OR, NOT, and group by declared columns; {A_COLUMN}"),
    "CAST": ("a cast", "literals take the declared type of their column"),
    "TRY_CAST": ("a cast", "literals take the declared type of their column"),
    "EXISTS": ("a subquery", "ask one question at a time"),
    "SELECT": ("a subquery", "ask one question at a time"),
    "ALL": ("ALL", "name the columns"),
    "ANY": ("ANY", "write IN (literal, ...)"),
    "SOME": ("SOME", "write IN (literal, ...)"),
    "COLLATE": ("COLLATE", "text is compared by its characters"),
    "NULL": ("a comparison with NULL", "write IS NULL or IS NOT NULL"),
    "DISTINCT": ("DISTINCT", "write count(DISTINCT unit), with the column that identifies a person, to count people"),
    "TIMESTAMP": ("a time stamp", "write DATE '2026-01-31'"),
    "INTERVAL": ("an interval", "write DATE '2026-01-31'"),
    "XOR": ("XOR", "join conditions with AND, OR, NOT"),
    "ROLLUP": ("ROLLUP", "name the columns after GROUP BY"),
    "CUBE": ("CUBE", "name the columns after GROUP BY"),
    "GROUPING": ("GROUPING SETS", "name the columns after GROUP BY"),
    "ISNULL": ("ISNULL", "write IS NULL"),
    "NOTNULL": ("NOTNULL", "write IS NOT NULL"),
    "ESCAPE": ("ESCAPE", "write IN ('value', ...)"),
    "SYMMETRIC": ("BETWEEN SYMMETRIC", "write BETWEEN low AND high"),
}
_JOINS = frozenset(
    ("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "OUTER", "LATERAL", "POSITIONAL", "ASOF", "SEMI", "ANTI")
)
_DATE_PARTS = frozenset(
    [
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DAYOFYEAR", "WEEKDAY", "DATE", "STRFTIME"),
        *("EXTRACT", "DATE_TRUNC", "DATETRUNC", "DATE_PART", "DATEPART", "DATE_FORMAT", "TO_CHAR", "TRUNC"),
    ]
)


_STATEMENT = "the form is SELECT columns, count(*) FROM dataset WHERE condition GROUP BY columns"


def refusal(token: Token, allowed: str) -> QueryError:
    """The error for a token that the grammar does not allow at its place; `allowed` says what to write there."""
    word = token.word
    if word in _CONSTRUCTS:
        return QueryError(*_CONSTRUCTS[word], token.at)
    if word in _JOINS:
        return QueryError(*_CONSTRUCTS["JOIN"], token.at)
    if token.kind == "end":
        return QueryError("the query stops too early", allowed, token.at)
    if token.kind == "symbol" and token.value == ";":
        return QueryError("a second statement", "ask one question at a time", token.at)
    if token.kind == "symbol" and token.value in "*-":
        return QueryError(*ARITHMETIC, token.at)
    nouns = {"text": "the text", "integer": "the number", "quoted": "the name", "symbol": "the symbol"}
    return QueryError(f"{nouns.get(token.kind, 'the word')} {shorten(token.value, 40)}", allowed, token.at)


def keyword(token: Token, allowed: str) -> QueryError:
    """The error for a keyword where a name is expected. It also says how to quote a name that is a keyword."""
    error = refusal(token, allowed)
    return QueryError(error.construct, f"{error.allowed}; {quoting(token)}", token.at)


def quoting(token: Token) -> str:
    """How to write a name that is also a keyword, for an error message."""
    return f'a column of that name is written in double quotes: "{shorten(token.value, 40)}"'


def function(token: Token, allowed: str) -> QueryError:
    """The error for a function call: a word followed by a parenthesis.

    `allowed` says what to write there. It is used for functions that have no advice of their own.
    """
    word = token.word
    if word in _CONSTRUCTS:
        return QueryError(*_CONSTRUCTS[word], token.at)
    if word == "COUNT":
        return QueryError("a count in this place", "write count(*) once, before FROM; filter the answer", token.at)
    if word in STATISTICS:
        allowed = HISTOGRAM
    elif word in _DATE_PARTS:
        allowed = f"a date is compared with DATE '2026-01-31' or grouped by its declared step of days; {A_COLUMN}"
    else:
        allowed = f"{allowed}; {A_COLUMN}"
    return QueryError(f"the function {shorten(token.value, 40)}", allowed, token.at)


def not_a_select(token: Token) -> QueryError:
    """The error for a text that does not start with SELECT."""
    if token.kind == "word" and token.word != "WITH":
        return QueryError(f"a statement that starts with {shorten(token.value, 40)}", _STATEMENT, token.at)
    if token.kind == "symbol" and token.value == "(":
        return QueryError("parentheses around the query", _STATEMENT, token.at)
    if token.kind == "symbol" and token.value == ";":
        return QueryError("an empty query", _STATEMENT, token.at)
    return refusal(token, _STATEMENT)


def not_a_column(token: Token) -> QueryError | None:
    """The error for a token after SELECT that is neither a column nor count(*); None if there is no special message."""
    if token.kind == "symbol" and token.value == "*":
        return QueryError("* for all columns", "rows are counted, not shown: write count(*)", token.at)
    if token.word == "COUNT":
        return QueryError("count without parentheses", "write count(*) or count(DISTINCT unit)", token.at)
    if token.word == "FROM":
        return QueryError("a query without a count", "write count(*) before FROM", token.at)
    if token.word == "DISTINCT":
        return QueryError("SELECT DISTINCT", "name the columns in GROUP BY", token.at)
    return None


def not_a_dataset(token: Token) -> QueryError | None:
    """The error for a token after FROM that is not a dataset; None if there is no special message."""
    if token.kind == "symbol" and token.value == "(":
        return QueryError("a subquery", "write FROM and the name of one dataset", token.at)
    if token.kind == "text":
        return QueryError("a file or text after FROM", "write the name of a declared dataset", token.at)
    return None


def after_dataset(token: Token) -> QueryError | None:
    """The error for a token after the dataset's name that is not allowed there; None if there is no special message."""
    if token.kind == "symbol" and token.value == ",":
        return QueryError("a second dataset", "ask about one dataset at a time", token.at)
    if token.kind == "symbol" and token.value == "(":
        return QueryError("a table function", "write the name of a declared dataset", token.at)
    plain = token.kind in ("word", "quoted") and token.word not in _CONSTRUCTS and token.word not in _JOINS
    if plain:
        return QueryError(
            f"an alias for the dataset ({shorten(token.value, 40)})",
            "leave it out and write column names alone; WHERE, GROUP BY or the end is expected here",
            token.at,
        )
    return None


def not_counted(token: Token) -> QueryError:
    """The error for anything but * and DISTINCT in the parentheses of count(...)."""
    allowed = "write count(*) for rows or count(DISTINCT unit) for people"
    if token.word in STATISTICS:
        allowed = HISTOGRAM
    if token.kind in ("word", "quoted") and token.word != "ALL":
        return QueryError(f"a count of {shorten(token.value, 40)}", allowed, token.at)
    return refusal(token, allowed)


def not_a_test(name: Name, token: Token, allowed: str) -> QueryError:
    """The error for a token that follows a column in a condition but is no comparison operator, IN, BETWEEN or IS."""
    column = shorten(name.text, 40)
    ends = token.kind == "end" or token.word in ("AND", "OR", "GROUP") or token.value in (")", ";")
    if ends and token.kind not in ("text", "quoted"):
        return QueryError(
            f"the column {column} alone as a condition", f"write {column} = TRUE, or another test", name.at
        )
    if not name.quoted and name.text.upper() in _CONSTRUCTS:
        return QueryError(*_CONSTRUCTS[name.text.upper()], name.at)
    if not name.quoted and name.text.upper() == "DATE" and token.kind in ("integer", "quoted"):
        return not_a_date(token)
    if token.kind == "symbol" and token.value == "(":
        return QueryError(f"the function {column}", "compare a column with a literal", name.at)
    return refusal(token, allowed)


def not_null(token: Token) -> QueryError:
    """The error for anything but NULL after IS or IS NOT."""
    if token.word in ("TRUE", "FALSE"):
        return QueryError(f"IS {token.word}", f"write = {token.word}", token.at)
    if token.word in ("DISTINCT", "UNKNOWN"):
        return QueryError(f"IS {token.word}", "write = or <>, IS NULL or IS NOT NULL", token.at)
    return refusal(token, "write IS NULL or IS NOT NULL")


def not_a_literal(token: Token, allowed: str) -> QueryError:
    """The error for a token where a literal is expected."""
    if token.kind == "quoted":
        name = shorten(token.value, 40)
        return QueryError(f'the name "{name}" in place of a value', f"write text in single quotes: '{name}'", token.at)
    if token.kind == "symbol" and token.value == "(":
        return QueryError("parentheses or a subquery in place of a value", allowed, token.at)
    if token.kind == "word" and token.word not in _CONSTRUCTS:
        allowed = HISTOGRAM if token.word in STATISTICS else allowed
        return QueryError(f"the word {shorten(token.value, 40)} in place of a value", allowed, token.at)
    return refusal(token, allowed)


def not_a_date(token: Token) -> QueryError:
    """The error for the word DATE that is not followed by a date in quotes."""
    return QueryError(f"DATE {shorten(token.value or 'alone', 40)}", "write a date as DATE '2026-01-31'", token.at)
