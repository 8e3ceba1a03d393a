"""Data on disk: ``shards`` and their ``pages``, the ``dataset`` they make, and its ``chunk_table``.

Read ``shards`` and ``dataset``; ``arrays`` is the same for rows in memory, ``vectors`` finds features in the Parquet of
others, ``predictions`` writes results, ``drift`` compares shards.
"""
