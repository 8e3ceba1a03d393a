"""Training: problems over one stream of rows, planned before the first read, certified at the end.

Read ``problems`` and ``plan`` (what is decided once), ``run`` (the loop of a run) and ``executor`` (what a process
needs to make visits), then ``roles/``: what each kind of method does in a group and at the driver. ``records/`` is what
a run writes down.
"""
