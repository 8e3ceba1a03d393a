"""The command line as a process of its own, with the patience of a test ($BIGCLF_CHAOS_PATIENCE is JSON) and epochs of
two segments. With $BIGCLF_CHAOS_JOINED workers join what their groups came to, however small it is."""

import json
import os

from bigclf.cli import main
from bigclf.cluster import joining
from bigclf.cluster.book import Patience
from bigclf.training import plan

if __name__ == "__main__":
    given = json.loads(os.environ.get("BIGCLF_CHAOS_PATIENCE", "{}"))
    Patience.__new__.__defaults__ = tuple(Patience(**given))
    plan._segments = lambda *_: 2  # as the tests' own process has it
    if os.environ.get("BIGCLF_CHAOS_JOINED"):
        joining.SPREAD_BYTES = joining.CUT_BYTES = joining.LINE_BYTES = 0
    main()
