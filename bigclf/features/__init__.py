"""Raw columns into sparse rows: what a column becomes is declared, learned in one pass, and kept with the model.

Read ``spec`` (the declaration), ``values`` (cells as numbers, categories, dates), ``extract`` (raw features), ``tally``
(what is learned of them) and ``encode`` (their places and scales).
"""
