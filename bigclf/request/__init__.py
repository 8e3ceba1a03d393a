"""What a person asks for, and of what.

``options`` declares every option once; ``request`` checks all that needs no row; ``door`` asks once what the data
is; ``prepare`` brings both together for ``fit``, ``sweep``, ``path`` and ``plan``.
"""
