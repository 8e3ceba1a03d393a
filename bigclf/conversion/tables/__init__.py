"""Raw tables and documents: ``reading`` as columns, ``from_columns`` to shards, ``raw_rows`` for predictions.

``suggest`` proposes what should become of each column.
"""
