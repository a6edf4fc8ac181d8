"""Runs the command line for `python -m countveil`."""

from countveil.cli import main

main()
