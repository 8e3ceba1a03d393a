"""The verbs: what ``bigclf.<verb>`` and the command of the same name do, a file each; begin with ``fit``.

``outcome`` is what a run leaves behind. ``convert`` and ``split`` are in ``conversion/``, ``report`` in ``reporting/``.
"""
