"""Finished tables of counts, released with noise: `countveil release`.

columns       the count columns of one table, their noise, and the guarantee of all together
table_files   CSV and Parquet files in, the same kind of file with noisy counts out
"""
