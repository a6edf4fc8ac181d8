"""Helpers that tests share: real servers, folders with data and a ledger, independent oracles."""
