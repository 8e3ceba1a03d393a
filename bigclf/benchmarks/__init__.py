"""Side-by-side figures of bigclf and other programs on one machine: data, peers, measurements, what comes of them.

Read ``sets`` (what is measured on), ``peers`` (what it is measured against), ``child`` and ``ours`` (the processes that
are measured), ``comparing`` (who runs when, and what is worked out).
"""
