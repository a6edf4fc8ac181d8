"""Files that appear whole or not at all: everything that countveil writes is written here.

durable_files    the only writer: every file is synced to disk; private files are readable only by their owner
"""
