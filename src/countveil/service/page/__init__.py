"""The page: explore mechanisms, ask questions, see the budget. Rendered here; scripts only make it livelier.

views      the addresses of the page
sessions   who is logged in: a cookie that is not the key
explore    what the sliders ask for, and the numbers behind the pictures
agency     the same in the words of statistical offices, as a table of the cell-key method
asking     the form to ask: the dry run first, then the question, and the answer
budgets    what is left, what was asked and by whom, and whether the chain holds
pictures   inline SVG, coloured by the style sheet
fields     the fields of the form against SQL text, both ways
templates, static   the rest
"""
