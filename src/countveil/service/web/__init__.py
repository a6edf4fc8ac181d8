"""The web pages: explore mechanisms, ask questions, see the budget and publications.

They are rendered on the server and work without JavaScript.

views         the addresses of the pages
sessions      log-in sessions: a signed cookie that does not contain the key
explore_page  the mechanism that the sliders choose, and the numbers of its pictures
agency        the explore page with the parameters of statistical offices: a table of the cell-key method
ask_page      the form to ask: first the dry run, then the question, and the answer
budget_page   what is left, what was asked and by whom, and whether the ledger is intact
pictures      inline SVG, coloured by the style sheet
fields        conversion between the fields of the form and SQL text
templates, static   HTML templates; style sheet and scripts
"""
