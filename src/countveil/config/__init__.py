"""`countveil.toml`: which data, which public schema, which budget.

configuration   the file as typed settings; unknown keys are errors
keys            every key and environment variable, with its meaning
budget          budgets: epsilon, delta, grades, shares
values          single values, checked
bounds          compares choices of contribution bounds and finds the one with the least total error
ledger_places   the ledgers that were used beside a configuration before
public_files    the public CSV files that the configuration names
publications    publications: their tables, accuracies and editions
draft           `countveil init`: a first configuration for a source
confirmation    `countveil init --confirm`: the guesses of a draft, and a file with one of them confirmed
profile         `countveil inspect`: how the data fits the declared schema
drift           `countveil inspect --strict`: whether new data still fits the schema
inspections     `countveil inspect --since`: the private record of the last inspection, and what changed
"""
