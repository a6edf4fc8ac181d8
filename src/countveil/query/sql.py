"""SQL text -> Query: a recursive-descent parser for a closed language. What it does not accept does not exist.

    query      = SELECT [column {, column} ,] count [[AS] name] FROM dataset [WHERE condition]
                 [GROUP BY column {, column}] [;]
    count      = COUNT ( * ) | COUNT ( DISTINCT unit )
    condition  = term {OR term} ;  term = factor {AND factor} ;  factor = [NOT] factor | ( condition ) | test
    test       = column op literal | literal op column | column [NOT] IN ( literal {, literal} )
               | column [NOT] BETWEEN literal AND literal | column IS [NOT] NULL
    op         = '=' | '<>' | '!=' | '<' | '<=' | '>' | '>='
    literal    = 'text' | integer | TRUE | FALSE | DATE 'YYYY-MM-DD'

A name is a word that is no keyword, COUNT, DATE or BY where the neighbouring token says so, or text in double quotes.

Text is only a syntax: the engine's query is generated from the typed question, never from these words.
"""

from __future__ import annotations

from countveil.errors import QueryError, shortened
from countveil.query import refusals
from countveil.query.expression import (
    FLIPPED,
    MAX_LIST,
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
    count_name,
)
from countveil.query.tokens import NAMEABLE, RESERVED, Token, tokenise
from countveil.schema import INT64, MAX_NAME, date_from_text

MAX_DEPTH = 64
TEST = "a condition is column op literal, IN (...), BETWEEN ... AND ..., or IS NULL, joined by AND, OR, NOT"
LITERAL = "a literal is 'text', a whole number, TRUE, FALSE or DATE '2026-01-31'"


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


_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


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

    def peek(self, ahead: int = 1) -> Token:
        """A token after this one; after the end is the end."""
        return self.tokens[min(self.i + ahead, len(self.tokens) - 1)]

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

    def refuse(self, allowed: str) -> QueryError:
        """The refusal of the next token: named as a construct of SQL where it is one."""
        return refusals.refusal(self.now, allowed)

    def forbid(self, refused: QueryError | None) -> None:
        """Raise the refusal, if there is one."""
        if refused is not None:
            raise refused

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
            self.expect(",", "a comma, more columns, then count(*)")
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
        shown = name.text if name else count_name(column.text for column in selected)
        return Query(dataset, chosen, where, distinct, shown)

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
        found = self.name("a name for the count")
        if len(found.text) > MAX_NAME or not found.text.isprintable():
            raise QueryError(
                f"the name {shortened(found.text, 40)} for the count",
                f"use 1 to {MAX_NAME} printable characters",
                found.at,
            )
        return found

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
        """CASE WHEN or CASE column WHEN is next; no name is followed by a name."""
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
        found = self.parenthesis() if _is(self.now, "(") else self.test()
        return Negation(found) if negations % 2 else found

    def parenthesis(self) -> Condition:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise QueryError("parentheses nested too deeply", f"at most {MAX_DEPTH} levels are allowed", self.now.at)
        self.take()
        found = self.condition()
        self.expect(")", "AND, OR or a closing parenthesis is expected here")
        self.depth -= 1
        return found

    def test(self) -> Condition:
        if self.starts_literal():
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
            if not self.accept("NULL"):
                raise refusals.not_null(self.now)
            found = IsNull(column)
        elif _is(self.now, *FLIPPED):
            found = Comparison(column, self.take().value, self.literal())
        else:
            raise refusals.not_a_test(column, self.now, TEST)
        return Negation(found) if negated else found

    def starts_test(self, ahead: int) -> bool:
        """That token is an operator, IN, BETWEEN or IS: what follows a column."""
        token = self.peek(ahead)
        return _is(token, *FLIPPED) or token.word in ("IN", "BETWEEN", "IS")

    def starts_literal(self) -> bool:
        """A literal is next; DATE is one before a text, and a name otherwise."""
        dated = self.now.word == "DATE" and self.peek().kind == "text"
        return dated or _is(self.now, "-") or self.now.kind in ("text", "integer") or self.now.word in ("TRUE", "FALSE")

    def reversed(self) -> Condition:
        """literal op column, read as column op literal."""
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
    """The selected columns, which are the group columns, each once; of two spellings the quoted one counts."""
    chosen, grouped = _once(selected), _once(by)
    for folded, column in chosen.items():
        if folded not in grouped:
            raise QueryError(
                f"the column {shortened(column.text, 40)} without GROUP BY", "name it in GROUP BY too", column.at
            )
    for folded, column in grouped.items():
        other = chosen.get(folded)
        if other is None or (column.quoted and other.quoted and column.text != other.text):
            raise QueryError(
                f"GROUP BY {shortened(column.text, 40)} without showing it", "name it before count(*) too", column.at
            )
    if name is not None and name.text.casefold() in {column.text.casefold() for column in selected}:
        raise QueryError(f"the name {shortened(name.text, 30)} for the count", "give it a name of its own", name.at)
    return tuple(grouped[folded] if grouped[folded].quoted else column for folded, column in chosen.items())


def _once(columns: list[Name]) -> dict[str, Name]:
    """The columns by their names without the case of ASCII letters, in order; no dataset has two such columns."""
    found: dict[str, Name] = {}
    for column in columns:
        plain = column.text.translate(_LOWER)
        if plain in found:
            raise QueryError(f"the column {shortened(column.text, 40)} twice", "name each column once", column.at)
        found[plain] = column
    return found
