"""Publications: many tables of one dataset that add up, under one guarantee.

layout        the finest cells of a publication, its tables as sums of them, and their tree
accuracy      grades for its tables, so that the published numbers have the margins that were asked for
outlook       what a publication will contain, before anything is paid or looked at
edition       from recorded measurements to published tables and margins across the tree
writing       an edition as files: tables, margins, laws, manifest
manifest      what the manifest says of an edition, and the form that it has
labels        the labels of cells as people read them
treemap       the counts of the coarsest tables as areas
charts        errors by size, and shares of quality marks, as pictures
report        a page with these pictures, the guarantee, and small areas
registry      an entry for public registries of differentially private releases
folder        the folder of an edition: written whole, and read again
editions      the editions in the declared output, and their summaries
verification  what can be checked from these files alone
change        the difference of two editions
publication   `Publication`: an edition as its readers have it
"""
