"""The workflow of an answer: ask, charge, count, draw, record, answer.

curator           the workflow itself
pool_plans        the plan of each pool and its grades, designed once
plan_records      plans as the ledger records them
publishing        publications: charge all tables, count once, draw, record, derive
results           result types: tables with margins, dry runs
receipts          receipts, and what is left of pools, grades and shares
recorded_counts   the counts of an answer: drawn once, packed for the ledger
table_files       a table as CSV, JSON or Parquet, with what it counts
grid              the cells of a table: all combinations of the labels of its group columns
estimates         quantiles and means of released histograms
overview          what a curator reports besides answers: datasets, history, receipts, budgets
summaries         summaries of datasets and of charged questions
parquet_results   answers in files: Parquet parts and the manifest that lists them
"""
