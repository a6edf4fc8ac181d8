"""Publications: many tables of one dataset that add up, under one guarantee.

layout        the finest cells of a publication, its tables as sums of them, and their tree
accuracy      grades for its tables, so that the published numbers have the margins that were asked for
outlook       what a publication will contain, before anything is paid or looked at
edition       from recorded measurements to published tables and margins across the tree
writing       an edition as files: tables, margins, laws, manifest
report        a page with a treemap, errors by size, and small areas
registry      an entry for public registries of differentially private releases
folder        the folder of an edition: written whole, and read again
editions      the editions in the declared output, and their summaries
verification  what can be checked from these files alone
change        the difference of two editions
publication   `Publication`: an edition as its readers have it
"""
