"""From chunks to blocks: what a pass sees of the rows, and what of them stays in memory.

Read ``blocks``; then ``working_set`` (rows that still matter), ``raw_store`` (decoded chunks on local disk, packed by
``packing``) and ``row_files`` (numbers of each row on disk).
"""
