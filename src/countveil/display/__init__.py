"""Objects as people see them: one line in a prompt, a compact card in a notebook, small pictures.

cards    one line and an HTML card for every object that users receive
svg      shapes, scales and axes as text, for pictures without a drawing library
"""
