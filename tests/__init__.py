"""Tests of countveil; helpers are in `tests.support`."""
