"""The verbs: what ``bigclf.<verb>`` and the command of the same name do, a file each; begin with ``fit``.

``outcome`` is what a run leaves behind. ``convert`` and ``split`` are in ``conversion/``, ``report`` in ``reporting/``.
"""

# First of all, from here: numba's tables of types and ours of methods are filled by small calls, each of which takes 25
# times as long where the stack of Python's frames crosses the end of one of its pieces, as below a chain of imports.
import bigclf.compiled.jit
import bigclf.methods  # noqa: F401
