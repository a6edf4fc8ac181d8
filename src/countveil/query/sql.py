"""SQL text -> Query: a recursive-descent parser for a closed language. It refuses everything outside this grammar.

    query      = SELECT [column {, column} ,] count [[AS] name] FROM dataset [WHERE condition]
                 [GROUP BY column {, column}] [;]
    count      = COUNT ( * ) | COUNT ( DISTINCT unit )
    condition  = term {OR term} ;  term = factor {AND factor} ;  factor = [NOT] factor | ( condition ) | test
    test       = column op literal | literal op column | column [NOT] IN ( literal {, literal} )
               | column [NOT] BETWEEN literal AND literal | column IS [NOT] NULL
    op         = '=' | '<>' | '!=' | '<' | '<=' | '>' | '>='
    literal    = 'text' | integer | TRUE | FALSE | DATE 'YYYY-MM-DD'

A name is a word that is not a keyword, or text in double quotes. COUNT, DATE and BY can also be names where the
neighbouring token shows that they are not meant as keywords.

An engine never sees the analyst's text: the SQL that it runs is generated from the checked and typed question.
"""

from __future__ import annotations

from collections.abc import Iterable

from countveil.errors import QueryError, shorten
from countveil.query import refusals
from countveil.query.expression import (
    FLIPPED,
    MAX_LIST,
    Among,
    Between,
    Both,
    ColumnComparison,
    Condition,
    Constant,
    Either,
    IsNull,
    Name,
    Negation,
    Query,
)
from countveil.query.schema import INT64, MAX_NAME, date_from_text
from countveil.query.tokens import NAMEABLE, RESERVED, Token, tokenise

MAX_DEPTH = 64
TEST = "a condition is column op literal, IN (...), BETWEEN ... AND ..., or IS NULL, joined by AND, OR, NOT"
LITERAL = "a literal is 'text', a whole number, TRUE, FALSE or DATE '2026-01-31'"


def parse(text: str) -> Query:
    """Parse SQL text to a Query.

    >>> parse("SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region").by
    (Name(text='region', quoted=False, at=8),)
    """
    return _Parser(tokenise(text)).query()


def parse_condition(text: str) -> Condition:
    """Parse a condition alone, as it is written after WHERE.

    >>> parse_condition("NOT age < 65")  # doctest: +ELLIPSIS
    Negation(part=ColumnComparison(column=Name(text='age', ...
    """
    parser = _Parser(tokenise(text))
    condition = parser.condition()
    parser.end()
    return condition


_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class _Parser:
    """A parser that goes through the tokens once. `depth` limits nesting, so no text can exhaust the call stack."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.i = 0
        self.depth = 0

    # -- tokens ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Token:
        return self.tokens[self.i]

    def peek(self, ahead: int = 1) -> Token:
        """The token that comes `ahead` places after the current one, or the end token."""
        return self.tokens[min(self.i + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.i]
        self.i = min(self.i + 1, len(self.tokens) - 1)
        return token

    def accept(self, word: str) -> bool:
        """If the next token is this keyword or symbol, skip it and return True."""
        token = self.now
        if token.word == word or (token.kind == "symbol" and token.value == word):
            self.take()
            return True
        return False

    def expect(self, word: str, allowed: str) -> None:
        if not self.accept(word):
            raise self.refuse(allowed)

    def refuse(self, allowed: str) -> QueryError:
        """The error for the next token: it names the SQL construct that starts there, and what to write instead."""
        return refusals.refusal(self.now, allowed)

    def forbid(self, error: QueryError | None) -> None:
        """Raise the error if there is one."""
        if error is not None:
            raise error

    def end(self) -> None:
        ended = self.accept(";")
        if self.now.kind != "end":
            if ended:
                raise QueryError("a second statement", "ask one question at a time", self.now.at)
            raise self.refuse("AND, OR, GROUP BY or the end of the query is expected here")

    # -- the query ---------------------------------------------------------------------------------------------------

    def query(self) -> Query:
        if not self.accept("SELECT"):
            raise refusals.not_a_select(self.now)
        selected: list[Name] = []
        while not (self.now.word == "COUNT" and _is(self.peek(), "(")):
            if not _is(self.peek(), ",") or _is(self.now, "*"):
                self.forbid(refusals.not_a_column(self.now))
            selected.append(self.name("a column or count(*)"))
            if self.now.word == "FROM":
                raise QueryError("a query without a count", "write count(*) before FROM", self.now.at)
            self.expect(",", "write a comma, then more columns or count(*)")
        distinct = self.count()
        name = self.alias()
        if _is(self.now, ",") and self.peek().kind == "word" and _is(self.peek(2), "("):
            raise refusals.function(self.peek(), "the count comes last")
        self.expect("FROM", "the count comes last: write FROM and the name of one dataset after it")
        if self.now.kind in ("symbol", "text"):
            self.forbid(refusals.not_a_dataset(self.now))
        dataset = self.name("the name of a dataset")
        if not (self.now.kind == "end" or self.now.word in ("WHERE", "GROUP") or _is(self.now, ";")):
            self.forbid(refusals.after_dataset(self.now))
        where = self.condition() if self.accept("WHERE") else None
        by = self.groups()
        self.end()
        chosen = _check_columns(selected, by, name)
        count = name.text if name else count_name(column.text for column in selected)
        return Query(dataset, chosen, where, distinct, count)

    def count(self) -> Name | None:
        self.take()
        self.expect("(", "count(*)")
        distinct = None
        if self.accept("DISTINCT"):
            distinct = self.name("the column that identifies a person")
        elif not self.accept("*"):
            raise refusals.not_counted(self.now)
        self.expect(")", "write count(*) or count(DISTINCT unit)")
        return distinct

    def alias(self) -> Name | None:
        bare = self.now.kind == "word" and self.peek().word == "FROM"
        if not self.accept("AS") and self.now.kind != "quoted" and not bare:
            return None
        alias = self.name("a name for the count")
        if len(alias.text) > MAX_NAME or not alias.text.isprintable():
            raise QueryError(
                f"the name {shorten(alias.text, 40)} for the count",
                f"use 1 to {MAX_NAME} printable characters",
                alias.at,
            )
        return alias

    def groups(self) -> list[Name]:
        if not self.accept("GROUP"):
            return []
        self.expect("BY", "write GROUP BY and the columns")
        by = [self.name("a declared column")]
        while self.accept(","):
            by.append(self.name("a declared column"))
        return by

    def name(self, what: str) -> Name:
        token = self.now
        plain = token.kind == "word" and (token.word not in RESERVED or token.word in NAMEABLE)
        if plain and _is(self.peek(), "("):
            raise refusals.function(token, f"{what} is expected here")
        if self.starts_case():
            raise self.refuse(what)
        if plain or (token.kind == "quoted" and token.value):
            self.take()
            return Name(token.value, token.kind == "quoted", token.at)
        if token.word in RESERVED:
            raise refusals.keyword(token, f"{what} is expected here")
        raise self.refuse(f"{what} is expected here")

    def starts_case(self) -> bool:
        """Whether CASE WHEN or CASE column WHEN comes next. A name is never followed by another name, so CASE is no
        name here."""
        operand = self.peek().kind in ("word", "quoted") and self.peek().word not in RESERVED
        when = self.peek().word == "WHEN" or (operand and self.peek(2).word == "WHEN")
        return self.now.word == "CASE" and when

    # -- conditions --------------------------------------------------------------------------------------------------

    def condition(self) -> Condition:
        parts = [self.term()]
        while self.accept("OR"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def term(self) -> Condition:
        parts = [self.factor()]
        while self.accept("AND"):
            parts.append(self.factor())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def factor(self) -> Condition:
        negations = 0
        while self.now.word == "NOT":
            if self.starts_test(1) and not self.starts_test(2):
                raise refusals.keyword(self.now, TEST)
            self.take()
            negations += 1
            if negations > MAX_DEPTH:
                raise QueryError("too many NOT in a row", f"at most {MAX_DEPTH} are allowed", self.now.at)
        condition = self.parenthesis() if _is(self.now, "(") else self.test()
        return Negation(condition) if negations % 2 else condition

    def parenthesis(self) -> Condition:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise QueryError("parentheses nested too deeply", f"at most {MAX_DEPTH} levels are allowed", self.now.at)
        self.take()
        condition = self.condition()
        self.expect(")", "AND, OR or a closing parenthesis is expected here")
        self.depth -= 1
        return condition

    def test(self) -> Condition:
        if self.starts_literal():
            return self.read_reversed()
        column = self.name("a declared column")
        negated = self.accept("NOT")
        if self.accept("IN"):
            test: Condition = Among(column, self.literals())
        elif self.accept("BETWEEN"):
            low = self.literal()
            self.expect("AND", "write BETWEEN literal AND literal")
            test = Between(column, low, self.literal())
        elif negated:
            raise self.refuse("IN (...) or BETWEEN ... AND ... is expected after NOT")
        elif self.accept("IS"):
            negated = self.accept("NOT")
            if not self.accept("NULL"):
                raise refusals.not_null(self.now)
            test = IsNull(column)
        elif _is(self.now, *FLIPPED):
            test = ColumnComparison(column, self.take().value, self.literal())
        else:
            raise refusals.not_a_test(column, self.now, TEST)
        return Negation(test) if negated else test

    def starts_test(self, ahead: int) -> bool:
        """Whether the token `ahead` places after the current one can follow a column in a test: an operator, IN,
        BETWEEN or IS."""
        token = self.peek(ahead)
        return _is(token, *FLIPPED) or token.word in ("IN", "BETWEEN", "IS")

    def starts_literal(self) -> bool:
        """Whether a literal comes next. The word DATE starts a literal if a text follows; otherwise DATE is a name."""
        dated = self.now.word == "DATE" and self.peek().kind == "text"
        return dated or _is(self.now, "-") or self.now.kind in ("text", "integer") or self.now.word in ("TRUE", "FALSE")

    def read_reversed(self) -> Condition:
        """Parse a test written as `literal op column` and return it as `column op literal`."""
        first = self.now
        allowed = f"{TEST}; {refusals.quoting(first)}" if first.word in ("TRUE", "FALSE") else TEST
        constant = self.literal()
        if not _is(self.now, *FLIPPED):
            if self.now.kind == "end" or self.now.word in ("AND", "OR", "GROUP"):
                raise QueryError("a value alone as a condition", allowed, constant.at)
            raise self.refuse(allowed)
        op = FLIPPED[self.take().value]
        if self.starts_literal() and self.now.word not in ("TRUE", "FALSE"):
            raise QueryError("a comparison without a column", allowed, constant.at)
        return ColumnComparison(self.name("a declared column"), op, constant)

    def literals(self) -> tuple[Constant, ...]:
        self.expect("(", "write IN (literal, ...)")
        literals = [self.literal()]
        while self.accept(","):
            literals.append(self.literal())
            if len(literals) > MAX_LIST:
                raise QueryError("a list of too many values", f"at most {MAX_LIST} are allowed", literals[-1].at)
        self.expect(")", "a comma or a closing parenthesis is expected here")
        return tuple(literals)

    def literal(self) -> Constant:
        token = self.now
        if self.accept("TRUE"):
            return Constant(True, token.at)
        if self.accept("FALSE"):
            return Constant(False, token.at)
        if token.kind == "text":
            self.take()
            return Constant(token.value, token.at)
        if self.accept("DATE"):
            date = date_from_text(self.now.value) if self.now.kind == "text" else None
            if date is None:
                raise refusals.not_a_date(self.now)
            self.take()
            return Constant(date, token.at)
        return self.integer()

    def integer(self) -> Constant:
        token = self.now
        sign = -1 if self.accept("-") else 1
        if self.now.kind != "integer":
            raise refusals.not_a_literal(self.now, LITERAL)
        digits = self.take().value
        value = sign * int(digits) if len(digits) < 100 else 2**200
        if not INT64[0] <= value <= INT64[1]:
            raise QueryError("a number beyond 64 bits", "whole numbers lie in -2^63..2^63-1", token.at)
        return Constant(value, token.at)


def _is(token: Token, *symbols: str) -> bool:
    return token.kind == "symbol" and token.value in symbols


def _check_columns(selected: list[Name], by: list[Name], name: Name | None) -> tuple[Name, ...]:
    """Check that SELECT and GROUP BY name the same columns, and return these columns in the order of SELECT.

    A name that is quoted in one of the two places is returned in its quoted spelling.
    """
    chosen, grouped = _by_plain_name(selected), _by_plain_name(by)
    for folded, column in chosen.items():
        if folded not in grouped:
            raise QueryError(
                f"the column {shorten(column.text, 40)} without GROUP BY", "name it in GROUP BY too", column.at
            )
    for folded, column in grouped.items():
        other = chosen.get(folded)
        if other is None or (column.quoted and other.quoted and column.text != other.text):
            raise QueryError(
                f"GROUP BY {shorten(column.text, 40)} without selecting it",
                "name it in SELECT too, before count(*)",
                column.at,
            )
    if name is not None and name.text.casefold() in {column.text.casefold() for column in selected}:
        raise QueryError(
            f"the name {shorten(name.text, 30)} for the count", "use a name that no selected column has", name.at
        )
    return tuple(grouped[folded] if grouped[folded].quoted else column for folded, column in chosen.items())


def _by_plain_name(columns: list[Name]) -> dict[str, Name]:
    """The columns in their order, by name with ASCII letters in lower case; a column that is named twice is refused."""
    columns_by_name: dict[str, Name] = {}
    for column in columns:
        plain = column.text.translate(_LOWER)
        if plain in columns_by_name:
            raise QueryError(f"the column {shorten(column.text, 40)} twice", "name each column once", column.at)
        columns_by_name[plain] = column
    return columns_by_name


def count_name(columns: Iterable[str]) -> str:
    """The name of the count if the analyst gives none: "count", or "count_1" and so on if a group column has that name.

    >>> count_name(["region"]), count_name(["Count"])
    ('count', 'count_1')
    """
    taken = {column.casefold() for column in columns}
    names = ["count", *(f"count_{i}" for i in range(1, len(taken) + 1))]
    return next(name for name in names if name not in taken)
