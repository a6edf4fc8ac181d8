"""Where the rows are, whether they have changed, and the engines that count them and bound what one person adds.

source         a file, files, a table of a database or a frame, and a snapshot of it
fingerprints   snapshots that detect changed data: its content as one keyed hash
csv_files      checks that CSV files are RFC 4180, before any question
frames         frames of pandas, polars or pyarrow as Arrow tables
cell_labels    the labels of a table's cells, computed from cell numbers
survey         for the curator: values outside of domains, rows of each person
guesses        for the curator: guessed domains, and why a column is not proposed
contributions  for the curator: rows of people in cells of tables, and what bounds leave out
engines        the engines that count: DuckDB, PostgreSQL, Spark
"""
