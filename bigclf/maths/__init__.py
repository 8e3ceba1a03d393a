"""What the papers' formulas are made of: rows (``block``), losses, penalties, and how copies are mixed.

Read ``block`` and ``losses``; ``deltas`` is what changed in a state, ``hashing`` a feature's place by its name.
"""
