"""SQL text -> Query: a recursive-descent parser for a closed language. What it does not accept does not exist.

    query      = SELECT [column {, column} ,] count [[AS] name] FROM dataset [WHERE condition]
                 [GROUP BY column {, column}] [;]
    count      = COUNT ( * ) | COUNT ( DISTINCT unit )
    condition  = term {OR term} ;  term = factor {AND factor} ;  factor = [NOT] factor | ( condition ) | test
    test       = column op literal | literal op column | column [NOT] IN ( literal {, literal} )
               | column [NOT] BETWEEN literal AND literal | column IS [NOT] NULL
    op         = '=' | '<>' | '!=' | '<' | '<=' | '>' | '>='
    literal    = 'text' | integer | TRUE | FALSE | DATE 'YYYY-MM-DD'

Text is only a syntax: the engine's query is generated from the typed question, never from these words.
"""

from __future__ import annotations

from countveil.errors import QueryError, shortened
from countveil.query.expression import (
    FLIPPED,
    Among,
    Between,
    Both,
    Comparison,
    Condition,
    Constant,
    Either,
    IsNull,
    Name,
    Negation,
    Query,
)
from countveil.query.refusals import refusal
from countveil.query.tokens import RESERVED, Token, tokenise
from countveil.schema import INT64, date_from_text

MAX_DEPTH = 64
MAX_LIST = 10_000
FORM = "the form is SELECT columns, count(*) FROM dataset WHERE condition GROUP BY columns"
TEST = "a condition is column op literal, IN (...), BETWEEN ... AND ..., or IS NULL, joined by AND, OR, NOT"


def parse(text: str) -> Query:
    """The question that a SQL text asks.

    >>> parse("SELECT region, count(*) FROM people WHERE age >= 65 GROUP BY region").by
    (Name(text='region', quoted=False, at=8),)
    """
    return _Parser(tokenise(text)).query()


def parse_condition(text: str) -> Condition:
    """A condition alone, as after WHERE.

    >>> parse_condition("NOT age < 65")  # doctest: +ELLIPSIS
    Negation(part=Comparison(column=Name(text='age', ...
    """
    parser = _Parser(tokenise(text))
    condition = parser.condition()
    parser.end()
    return condition


class _Parser:
    """One walk over the tokens; `depth` bounds nesting so that no text can exhaust the stack."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.i = 0
        self.depth = 0

    # -- walking ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Token:
        return self.tokens[self.i]

    def take(self) -> Token:
        token = self.tokens[self.i]
        self.i = min(self.i + 1, len(self.tokens) - 1)
        return token

    def accept(self, word: str) -> bool:
        """Step over a keyword or symbol if it is next."""
        token = self.now
        if token.word == word or (token.kind == "symbol" and token.value == word):
            self.take()
            return True
        return False

    def expect(self, word: str, allowed: str) -> None:
        if not self.accept(word):
            raise self.refuse(allowed)

    def refuse(self, allowed: str, token: Token | None = None) -> QueryError:
        """The refusal of the next token: named as a construct of SQL where it is one."""
        token = token or self.now
        return refusal(token, allowed)

    def end(self) -> None:
        ended = self.accept(";")
        if self.now.kind != "end":
            if ended:
                raise QueryError("a second statement", "ask one question at a time", self.now.at)
            raise self.refuse("the query ends here")

    # -- the query ---------------------------------------------------------------------------------------------------

    def query(self) -> Query:
        self.expect("SELECT", FORM)
        selected: list[Name] = []
        while not (self.now.word == "COUNT" and self.tokens[self.i + 1].value == "("):
            selected.append(self.name("a column or count(*)"))
            self.expect(",", "a comma, more columns, then count(*)")
        distinct = self.count()
        name = self.alias()
        self.expect("FROM", "FROM and the name of one dataset, after a count that comes last")
        dataset = self.name("the name of a dataset")
        where = self.condition() if self.accept("WHERE") else None
        by = self.groups()
        self.end()
        _check_columns(selected, by, name)
        return Query(dataset, tuple(selected), where, distinct, name)

    def count(self) -> Name | None:
        self.take()
        self.expect("(", "count(*)")
        distinct = None
        if self.accept("DISTINCT"):
            distinct = self.name("the column that identifies a person")
        elif not self.accept("*"):
            raise self.refuse("write count(*) or count(DISTINCT unit)")
        self.expect(")", "write count(*) or count(DISTINCT unit)")
        return distinct

    def alias(self) -> str:
        if self.accept("AS"):
            return self.name("a name for the count").text
        if self.now.kind == "quoted" or (self.now.kind == "word" and self.tokens[self.i + 1].word == "FROM"):
            return self.name("a name for the count").text
        return "count"

    def groups(self) -> list[Name]:
        if not self.accept("GROUP"):
            return []
        self.expect("BY", "GROUP BY columns")
        by = [self.name("a declared column")]
        while self.accept(","):
            by.append(self.name("a declared column"))
        return by

    def name(self, what: str) -> Name:
        token = self.now
        plain = token.kind == "word" and token.word not in RESERVED
        if plain and self.tokens[self.i + 1].value == "(" and self.tokens[self.i + 1].kind == "symbol":
            raise QueryError(f"the function {shortened(token.value, 40)}", f"{what} is expected here", token.at)
        if plain or (token.kind == "quoted" and token.value):
            self.take()
            return Name(token.value, token.kind == "quoted", token.at)
        raise self.refuse(f"{what} is expected here")

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
        negated = False
        while self.accept("NOT"):
            negated = not negated
        opened = self.now.kind == "symbol" and self.now.value == "("
        found = self.parenthesis() if opened else self.test()
        return Negation(found) if negated else found

    def parenthesis(self) -> Condition:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise QueryError("parentheses nested too deeply", f"at most {MAX_DEPTH} levels are allowed", self.now.at)
        self.take()
        found = self.condition()
        self.expect(")", "a closing parenthesis")
        self.depth -= 1
        return found

    def test(self) -> Condition:
        if self.now.kind in ("text", "integer") or self.now.word in ("TRUE", "FALSE", "DATE") or self.now.value == "-":
            return self.reversed()
        column = self.name("a declared column")
        negated = self.accept("NOT")
        if self.accept("IN"):
            found: Condition = Among(column, self.literals())
        elif self.accept("BETWEEN"):
            low = self.literal()
            self.expect("AND", "BETWEEN literal AND literal")
            found = Between(column, low, self.literal())
        elif negated:
            raise self.refuse("NOT IN (...) or NOT BETWEEN ... AND ...")
        elif self.accept("IS"):
            negated = self.accept("NOT")
            self.expect("NULL", "write IS NULL or IS NOT NULL")
            found = IsNull(column)
        elif self.now.kind == "symbol" and self.now.value in FLIPPED:
            found = Comparison(column, self.take().value, self.literal())
        else:
            raise self.refuse(TEST)
        return Negation(found) if negated else found

    def reversed(self) -> Condition:
        """literal op column, read as column op literal."""
        constant = self.literal()
        if self.now.kind != "symbol" or self.now.value not in FLIPPED:
            raise self.refuse(TEST)
        op = FLIPPED[self.take().value]
        return Comparison(self.name("a declared column"), op, constant)

    def literals(self) -> tuple[Constant, ...]:
        self.expect("(", "IN (literal, ...)")
        found = [self.literal()]
        while self.accept(","):
            found.append(self.literal())
            if len(found) > MAX_LIST:
                raise QueryError("a list of too many values", f"at most {MAX_LIST} are allowed", found[-1].at)
        self.expect(")", "a comma or a closing parenthesis")
        return tuple(found)

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
                raise self.refuse("write a date as DATE '2026-01-31'")
            self.take()
            return Constant(date, token.at)
        return self.integer()

    def integer(self) -> Constant:
        token = self.now
        sign = -1 if self.accept("-") else 1
        if self.now.kind != "integer":
            raise self.refuse("a literal is 'text', a whole number, TRUE, FALSE or DATE '2026-01-31'")
        digits = self.take().value
        value = sign * int(digits) if len(digits) < 100 else 2**200
        if not INT64[0] <= value <= INT64[1]:
            raise QueryError("a number beyond 64 bits", "whole numbers lie in -2^63..2^63-1", token.at)
        return Constant(value, token.at)


def _check_columns(selected: list[Name], by: list[Name], name: str) -> None:
    """The selected columns are the group columns, each once."""
    chosen = {_folded(column) for column in selected}
    grouped = {_folded(column) for column in by}
    for columns in (selected, by):
        seen: set[str] = set()
        for column in columns:
            if _folded(column) in seen:
                raise QueryError(f"the column {shortened(column.text, 40)} twice", "name each column once", column.at)
            seen.add(_folded(column))
    for column in selected:
        if _folded(column) not in grouped:
            raise QueryError(
                f"the column {shortened(column.text, 40)} without GROUP BY", "name it in GROUP BY too", column.at
            )
    for column in by:
        if _folded(column) not in chosen:
            raise QueryError(
                f"GROUP BY {shortened(column.text, 40)} without showing it", "name it before count(*) too", column.at
            )
    if any(name.casefold() == column.text.casefold() for column in selected):
        raise QueryError(f"the name {shortened(name, 40)} for the count", "give the count a name of its own")


def _folded(column: Name) -> str:
    return column.text if column.quoted else column.text.lower()
