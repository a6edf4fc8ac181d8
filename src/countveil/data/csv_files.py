"""Checks CSV files when they are opened: a file that does not follow RFC 4180 is refused before any question.

In such a file, one record can change how others are read: a parser that guesses what `9001,No"rth,"50` means may read
everything up to the next quote as one field. So opening a file scans all of its bytes once. The accepted format: a
field is quoted as a whole or has no quote; a quote within quotes is written twice; records end with CRLF or LF, and the
last record may end with the file. Text need not be ASCII.

In an accepted file, quotes alternately open and close (a doubled quote closes and opens). So a byte is within quotes if
the number of quotes before it is odd, and no record changes how another is read.

Two further rules make up for what DuckDB does. DuckDB skips a record of more than 2 MB, but if such a record has line
ends within quotes and exceeds its buffers, it misreads the records that follow. So a record of more than 2 MB that has
a quote is refused. And DuckDB ends a record at a carriage return, so a carriage return outside quotes is refused unless
a line feed follows.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.data.source import Source
from countveil.errors import DataError, EngineError, ParameterError, shorten

CHUNK = 1 << 18
"""How many bytes are scanned together: few enough for the processor's cache."""
MAX_RECORD = 2_000_000
"""The largest size, in bytes, of a record that has a quote; at least `CHUNK`."""
BOM = b"\xef\xbb\xbf"
QUOTE, LF, CR = b'"\n\r'
WORD = 64
LONE = "a carriage return without a line feed, outside quotes"
Words = NDArray[np.uint64]
NONE = np.zeros(1, np.uint64)
SEPARATORS = {";": ";", ",": ",", "|": "|", "\t": "\\t"}
"""Common field separators, each with the way in which it is written in a configuration."""


@dataclass(frozen=True)
class Fault:
    """A place where a file breaks RFC 4180: the byte offset of the fault and, if the fault is within quotes, that of
    the opening quote."""

    reason: str
    offset: int
    opened: int | None = None


def delimiter_of(source: Source) -> str:
    """The field separator of a CSV source: the configured one, or the usual one for the ending of the source's name."""
    delimiter = source.delimiter or ("\t" if source.location.lower().endswith((".tsv", ".tsv.gz")) else ",")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ParameterError("delimiter", delimiter, "one ASCII character that is not a quote or a line end")
    return delimiter


def is_packed(source: Source) -> bool:
    """Whether the files are compressed with gzip, judged by the ending of the source's name."""
    return source.location.lower().endswith(".gz")


def read_header(paths: list[str], source: Source, delimiter: str) -> list[str]:
    """Read the column names, which must be the same in all files."""
    packed = is_packed(source)
    header = _first_record(paths[0], delimiter, packed)
    others = [separator for separator in SEPARATORS if separator != delimiter and separator in "".join(header)]
    if len(header) == 1 and others and source.delimiter is None:
        other = SEPARATORS[others[0]]
        raise DataError(
            f'source: the header of {shorten(paths[0], 100)} is one name that contains "{other}"; set the separator of '
            f'columns: countveil init --delimiter "{other}", or delimiter = "{other}" in countveil.toml; '
            f'for a file with one column, set it to "{SEPARATORS.get(delimiter, delimiter)}"'
        )
    if not header or not all(header) or len({name.casefold() for name in header}) != len(header):
        raise DataError(f"source: the header of {shorten(paths[0], 100)} needs a different name for every column")
    for path in paths[1:]:
        if _first_record(path, delimiter, packed) != header:
            raise DataError(f"source: {shorten(path, 100)} has a different header from {shorten(paths[0], 100)}")
    return header


def check_file(path: str, delimiter: str, packed: bool = False) -> None:
    """Refuse a file that does not follow RFC 4180; the error names the line. The file is read once."""
    try:
        with _open_bytes(path, packed) as file:
            fault = find_fault(file.readinto, delimiter)
        if fault is None:
            return
        line, opened = (_line(path, packed, offset) for offset in (fault.offset, fault.opened))
    except (OSError, EOFError, zlib.error):
        words = " as gzip up to its last byte; compress it again" if packed else ""
        raise EngineError(f"source: {shorten(path, 100)} could not be read{words}") from None
    place = f"line {line}" if opened in (None, line) else f"line {line}, with quotes that were opened on line {opened}"
    raise DataError(
        f"source: {shorten(path, 100)} is not CSV by RFC 4180, {place}: {fault.reason}; "
        "quote a field that has quotes or line ends as a whole, and write each quote in it twice"
    )


def find_fault(read_into: Callable[[Any], int | None], delimiter: str) -> Fault | None:
    """Find the first fault in the bytes that `read_into` supplies; None if there is no fault.

    The bytes pass through a window, and each byte is judged together with its neighbours. So the window begins with one
    byte that was already scanned, and the window's last bytes are scanned the next time.
    """
    window = bytearray(CHUNK + 4 * WORD)
    window[0], size, more = LF, 1, True
    scan, view = _Scan(window, ord(delimiter)), memoryview(window)
    while more:
        read = read_into(view[size : size + CHUNK]) or 0
        size, more = size + read, read > 0
        if more and size < WORD + 2 + len(BOM):
            continue
        if scan.offset == 0 and window.startswith(BOM, 1):
            window[1 : size - len(BOM)] = window[1 + len(BOM) : size]
            scan.offset, size = len(BOM), size - len(BOM)
        length = (size - 2) // WORD * WORD
        if not more:  # the end of the file ends a field, as a delimiter does
            length += 2 * WORD
            window[size : length + 2] = bytes([ord(delimiter)]) * (length + 2 - size)
        fault = scan.find(length)
        if fault is not None:
            return fault
        rest = window[length:size]
        window[: len(rest)], size = rest, len(rest)
    return Fault("a quote is never closed", scan.opened) if scan.inside else None


class _Scan:
    """A scan of a file, window by window.

    Each byte becomes one bit in words of 64 bits, so that one operation handles 64 bytes. Position 0 is the second byte
    of the window.
    """

    def __init__(self, window: bytearray, delimiter: int) -> None:
        self.window, self.data, self.delimiter = window, np.frombuffer(window, np.uint8), delimiter
        self.offset = 0
        """The number of bytes of the file before position 0."""
        self.inside = False
        """Whether position 0 is within quotes."""
        self.opened = 0
        """The offset in the file of the last opening quote."""
        self.began = 0
        """The offset in the file at which the record at position 0 begins."""
        self.quoted = False
        """Whether the record at position 0 has had a quote so far."""

    def find(self, length: int) -> Fault | None:
        """Scan the next `length` bytes (a multiple of 64) and return their first fault, or None."""
        window, stop = self.window, length + 1
        if not self.inside and window.find(QUOTE, 1, stop) < 0 and window.find(CR, 1, stop) < 0:
            fault = self._measure(length, NONE, self._bits(LF, length))
        else:
            fault = self._find(length)
        self.offset += length
        return fault

    def _bits(self, byte: int, length: int) -> Words:
        """A set of bits that marks the positions of a byte value."""
        return np.packbits(self.data[1 : length + 1] == byte, bitorder="little").view("<u8")

    def _find(self, length: int) -> Fault | None:
        quotes, feeds, returns, delimiters = (self._bits(byte, length) for byte in (QUOTE, LF, CR, self.delimiter))
        inside = _parities(quotes, self.inside)  # parity up to and including the byte
        opening, closing = quotes & inside, quotes & ~inside
        first, last = self.window[0], self.window[length + 1]
        bounds, ends = quotes | feeds | delimiters, (QUOTE, LF, self.delimiter)
        wrong_quotes = opening & ~_next(bounds, first in ends)
        texts = closing & ~_previous(bounds | returns, last in (*ends, CR))
        lone = returns & ~inside & ~_previous(feeds, last == LF)
        at = _first(wrong_quotes | texts | lone)
        self.inside = bool(inside[-1] >> np.uint64(WORD - 1))
        if at >= 0 or self.inside:
            last_opened = _last(opening if at < 0 else _up_to(opening, at))
            self.opened = self.opened if last_opened < 0 else self.offset + last_opened
        if at < 0:
            return self._measure(length, quotes, feeds & ~inside)
        if at == _first(texts):
            return Fault("text after a closing quote", self.offset + at, self.opened)
        reason = "a quote inside a field that is not quoted" if at == _first(wrong_quotes) else LONE
        return Fault(reason, self.offset + at)

    def _measure(self, length: int, quotes: Words, ends: Words) -> Fault | None:
        """Find a record that has a quote and is too long; `ends` marks the ends of records.

        A record that lies in one window is never too long, so only the record that began before the window is measured.
        """
        first_end, last_end, first_quote = _first(ends), _last(ends), _first(quotes)
        stop = length if first_end < 0 else first_end
        self.quoted |= 0 <= first_quote < stop
        if self.quoted and self.offset + stop - self.began > MAX_RECORD:
            return Fault(f"a record of more than {MAX_RECORD:,} bytes that has quotes", self.began)
        if last_end >= 0:
            self.began, self.quoted = self.offset + last_end + 1, _last(quotes) > last_end
        return None


def _next(bits: Words, first: bool) -> Words:
    """Move every bit one position later; `first` becomes the bit of the first position."""
    carried = np.concatenate((np.array([first], bits.dtype), bits[:-1] >> np.uint64(WORD - 1)))
    return bits << np.uint64(1) | carried


def _previous(bits: Words, last: bool) -> Words:
    """Move every bit one position earlier; `last` becomes the bit of the last position."""
    carried = np.concatenate((bits[1:], np.array([last], bits.dtype))) << np.uint64(WORD - 1)
    return bits >> np.uint64(1) | carried


def _parities(bits: Words, odd: bool) -> Words:
    """For every position, whether the number of set bits up to and including it is odd.

    `odd` says whether the number of set bits before the first position is odd.
    """
    parities = bits
    for shift in (1, 2, 4, 8, 16, 32):
        parities = parities ^ (parities << np.uint64(shift))
    totals = np.bitwise_xor.accumulate(parities >> np.uint64(WORD - 1))
    carried = np.concatenate((np.zeros(1, totals.dtype), totals[:-1])) ^ np.uint64(odd)
    return parities ^ (np.uint64(0) - carried)


def _first(bits: Words) -> int:
    """The position of the first set bit; -1 if no bit is set."""
    word = int((bits != 0).argmax())
    set_bits = int(bits[word])
    return word * WORD + (set_bits & -set_bits).bit_length() - 1 if set_bits else -1


def _last(bits: Words) -> int:
    """The position of the last set bit; -1 if no bit is set."""
    word = len(bits) - 1 - int((bits[::-1] != 0).argmax())
    set_bits = int(bits[word])
    return word * WORD + set_bits.bit_length() - 1 if set_bits else -1


def _up_to(bits: Words, at: int) -> Words:
    """The bits before a position. Words after that position's word are left out."""
    kept = bits[: at // WORD + 1].copy()
    kept[-1] &= np.uint64((1 << at % WORD) - 1)
    return kept


def _open_bytes(path: str, packed: bool) -> Any:
    return _Unpacked(open(path, "rb", buffering=0)) if packed else open(path, "rb", buffering=0)


class _Unpacked(io.RawIOBase):
    """A file object with the unpacked content of a gzip file.

    Anything after the last gzip member is an error, even zeros: Python's own reader skips zeros, but DuckDB fails on
    them.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file, self._member, self._packed, self._begun = file, zlib.decompressobj(31), b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._member.eof:
                self._packed, self._member, self._begun = self._member.unused_data, zlib.decompressobj(31), False
            self._packed = self._packed or self._file.read(CHUNK)
            if not self._packed and self._begun:
                raise EOFError
            if not self._packed:
                return 0
            plain = self._member.decompress(self._packed, len(buffer))
            self._packed, self._begun = self._member.unconsumed_tail, True
            if plain:
                buffer[: len(plain)] = plain
                return len(plain)

    def close(self) -> None:
        self._file.close()
        super().close()


def _line(path: str, packed: bool, offset: int | None) -> int | None:
    """The number of the line that contains the byte at `offset`."""
    if offset is None:
        return None
    line = 1
    with _open_bytes(path, packed) as file:
        while offset > 0 and (chunk := file.read(min(offset, CHUNK))):
            line, offset = line + chunk.count(b"\n"), offset - len(chunk)
    return line


def _first_record(path: str, delimiter: str, packed: bool) -> list[str]:
    open_text = gzip.open if packed else open
    try:  # invalid UTF-8 becomes surrogates, so that a fault in the rows after the header does not fail here
        with open_text(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            names = next(csv.reader(file, delimiter=delimiter), [])
        "".join(names).encode()
    except (OSError, EOFError, zlib.error, UnicodeError, csv.Error):
        raise EngineError(f"source: the header of {shorten(path, 100)} could not be read as UTF-8 text") from None
    return names
