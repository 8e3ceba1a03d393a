"""Other formats into shards, once, in bounded memory; rows that others hold come in by ``foreign_rows``.

Read ``convert``, ``converter`` (two passes) and ``shuffle``; ``text/`` parses rows that are sparse already, ``tables/``
reads raw columns. ``appending``, ``destination`` and ``resuming`` keep what is there, ``split`` cuts datasets.
"""
