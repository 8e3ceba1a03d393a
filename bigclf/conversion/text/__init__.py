"""Text of sparse rows: ``pieces`` cuts files, ``readers`` lists the formats, a file each.

``parsed`` is what every one of them yields.
"""
