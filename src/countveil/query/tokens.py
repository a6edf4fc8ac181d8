"""Splits SQL text into tokens with positions, and refuses characters and symbols that the language does not have.

Comments, dollar quotes, parameters, escapes and, outside quotes, letters beyond ASCII never reach the parser.
"""

from __future__ import annotations

import datetime
import itertools
import re
import unicodedata
from dataclasses import dataclass

from countveil.errors import QueryError, shorten

MAX_TEXT = 500_000
MAX_TOKENS = 60_000
RESERVED = frozenset(
    [
        *("SELECT", "COUNT", "DISTINCT", "AS", "FROM", "WHERE", "GROUP", "BY", "ALL"),
        *("AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "DATE"),
    ]
)
"""Keywords of the language: a column or dataset with such a name needs quotes."""
NAMEABLE = frozenset(["COUNT", "DATE", "BY"])
"""Keywords that may also be names without quotes, because the neighbouring token decides which is meant.

COUNT is a keyword only before a parenthesis, DATE only before a text, and BY only after GROUP.
"""

UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9][A-Za-z0-9_.]*)
      | (?P<text>'(?:[^']|'')*+')
      | (?P<quoted>"(?:[^"]|"")*+")
      | (?P<symbol><>|!=|<=|>=|--|/\*|\|\||::|==|[=<>(),;*\-+])
    """,
    re.VERBOSE,
)

A_COLUMN = "for other groups or values, ask the curator for a column that holds them"
ARITHMETIC = (
    "arithmetic",
    f"write count(*) alone; a column is compared with a literal or grouped by its declared step; {A_COLUMN}",
)
STATISTICS = frozenset(
    [
        *("SUM", "AVG", "MEAN", "MEDIAN", "MODE", "MIN", "MAX", "HISTOGRAM", "STDDEV", "STDDEV_POP", "STDDEV_SAMP"),
        *("VARIANCE", "VAR_POP", "VAR_SAMP", "QUANTILE", "QUANTILE_CONT", "QUANTILE_DISC", "APPROX_QUANTILE"),
        *("PERCENTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "PERCENTILE_APPROX", "APPROX_PERCENTILE"),
    ]
)
HISTOGRAM = (
    "only counts exist: GROUP BY the column for a histogram; the curator has its median and mean for free, in Python: "
    "table.quantile(0.5), table.mean()"
)
"""What to do instead of a function of `STATISTICS`."""
_SYMBOLS = {
    "--": ("a comment", "leave comments out"),
    "/*": ("a comment", "leave comments out"),
    "||": ("the operator ||", "compare a column with a literal"),
    "::": ("a cast", "literals take the declared type of their column"),
    "==": ("the operator ==", "write ="),
    "+": ARITHMETIC,
}
_ODD = {
    "$": ("a dollar quote or parameter", "write text as 'text'"),
    "?": ("a parameter", "write the value itself"),
    ":": ("a parameter or cast", "write the value itself"),
    "@": ("the operator @", "compare a column with a literal"),
    "%": ARITHMETIC,
    "/": ARITHMETIC,
    "^": ARITHMETIC,
    "~": ("a pattern match", "write IN ('value', ...)"),
    ".": ("a qualified name", "write the name of the column or dataset alone"),
    "[": ("a list or subscript", "write IN (...)"),
    "]": ("a list or subscript", "write IN (...)"),
    "{": ("a struct", "compare a column with a literal"),
    "}": ("a struct", "compare a column with a literal"),
    "!": ("the operator !", "write NOT, or <> between a column and a literal"),
    "|": ("the operator |", "write OR"),
    "&": ("the operator &", "write AND"),
    "#": ("a comment or the operator #", "leave comments out"),
    "`": ("a back-quoted name", 'write names in double quotes: "age"'),
    "'": ("a text literal that does not end", "close it with '"),
    '"': ("a quoted name that does not end", 'close it with "'),
    "≥": ("the character ≥", "write >="),
    "≤": ("the character ≤", "write <="),
    "≠": ("the character ≠", "write <>"),
    **dict.fromkeys("‘’“”", ("a typographic quote", "write text as 'text'")),
    "\x00": ("a NUL character", "remove it"),
    "\\": ("a backslash", "write a quote inside text as ''"),
}


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is word, quoted, text, integer, symbol or end; `value` is the text without quotes."""

    kind: str
    value: str
    at: int

    @property
    def word(self) -> str:
        """The word in upper case, for comparison with keywords; empty if the token is not a word."""
        return self.value.upper() if self.kind == "word" else ""


def tokenise(text: str) -> list[Token]:
    """Split SQL text into tokens; the last token is of kind "end".

    >>> [t.value for t in tokenise("age >= 65")]
    ['age', '>=', '65', '']
    """
    if not isinstance(text, str):
        raise QueryError(f"a query of type {type(text).__name__}", "write the query as text")
    if len(text) > MAX_TEXT:
        raise QueryError(f"a query of {len(text)} characters", f"at most {MAX_TEXT} are allowed", MAX_TEXT + 1)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _odd(text[at], at + 1)
        kind, value = match.lastgroup or "", match.group()
        if kind != "space":
            if kind == "number" and not (value.isascii() and value.isdigit()):
                raise _decimal(value, at + 1, tokens)
            tokens.append(_token(kind, value, at + 1))
            if len(tokens) > MAX_TOKENS:
                raise QueryError("a query of too many words and symbols", f"at most {MAX_TOKENS} are allowed", at + 1)
        at = match.end()
    tokens.append(Token("end", "", len(text) + 1))
    return tokens


def _token(kind: str, value: str, at: int) -> Token:
    if kind == "number":
        return Token("integer", value, at)
    if kind == "text":
        inner = value[1:-1]
        _check_characters(inner, at + 1)
        return Token("text", inner.replace("''", "'"), at)
    if kind == "quoted":
        inner = value[1:-1]
        _check_characters(inner, at + 1)
        return Token("quoted", inner.replace('""', '"'), at)
    if kind == "symbol" and value in _SYMBOLS:
        raise QueryError(*_SYMBOLS[value], at)
    return Token(kind, "<>" if value == "!=" else value, at)


def _decimal(value: str, at: int, before: list[Token]) -> QueryError:
    """The error for a number that is not whole, or for the function that has it as an argument: quantile(age, 0.5)."""
    for word, bracket in itertools.pairwise(before):
        if word.word in STATISTICS and (bracket.kind, bracket.value) == ("symbol", "("):
            return QueryError(f"the function {shorten(word.value, 40)}", HISTOGRAM, word.at)
    return QueryError(f"the number {shorten(value, 30)}", "write a whole number in digits", at)


def _check_characters(inner: str, at: int) -> None:
    """Refuse NUL and lone surrogates, which are not Unicode text."""
    match = UNWRITABLE.search(inner)
    if match:
        raise QueryError(f"the character U+{ord(match.group()):04X}", "remove it", at + match.start())


def _odd(character: str, at: int) -> QueryError:
    if character in _ODD:
        return QueryError(*_ODD[character], at)
    name = unicodedata.name(character, "without a name")
    prefix = f"{character} " if character.isprintable() else ""
    letters = 'names outside quotes use the letters a-z; write other names in double quotes: "Größe"'
    return QueryError(
        f"the character {prefix}(U+{ord(character):04X}, {name.lower()})",
        letters if character.isalnum() else "remove it, or write it inside quotes",
        at,
    )


def literal(value: str | int | bool | datetime.date) -> str:
    """A value written as a literal of the query language.

    >>> literal("it's"), literal(True), literal(-3), literal(datetime.date(2026, 1, 31))
    ("'it''s'", 'TRUE', '-3', "DATE '2026-01-31'")
    """
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"DATE '{value.isoformat()}'"


def quote_name(name: str) -> str:
    """The name as a query writes it: in double quotes unless it is a plain lower-case word.

    >>> quote_name("age"), quote_name("count"), quote_name('a"b')
    ('age', '"count"', '"a""b"')
    """
    plain = name.isascii() and name.isidentifier() and name.islower() and name.upper() not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
