"""Found by the interpreter as it starts: the child process a worker tries a shard in obeys the same orders."""

import os
import sys

if "bigclf.cluster.crash_trial" in sys.orig_argv and "BIGCLF_CHAOS" in os.environ:
    import chaos_worker

    chaos_worker.watch_decoding()
