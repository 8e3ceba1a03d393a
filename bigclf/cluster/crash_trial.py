"""A child process that does what a visit, a measurement or a prediction does, a chunk at a time, saying which: it may
die of it, the worker does not.

``python -m bigclf.cluster.crash_trial`` reads from its standard input what its own parent, a worker, has pickled.
"""

from __future__ import annotations

import pickle
import sys

import numpy as np

from bigclf.cluster.measuring import Measure, try_part
from bigclf.training.executor import Job, row_store_of, stream_of
from bigclf.training.roles import learner_of
from bigclf.training.roles.learner import Assignment
from bigclf.training.visit import Lesson, Scratch


def main() -> None:
    job, first, last, epoch = pickle.load(sys.stdin.buffer)
    if isinstance(job, Measure):
        try_part(job, first, last)
    elif isinstance(job, Job):
        try_groups(job, first, last, epoch)
    else:
        job.try_part(first, last)


def try_groups(job: Job, first: int, last: int, epoch: int) -> None:
    """Every chunk of the groups through reading, checks and kernel, from a fresh state."""
    plan = job.plan
    store, stream = row_store_of(job._replace(local_dir=None)), stream_of(job._replace(local_dir=None))
    chunks = job.source.chunks
    for group in range(first, last):
        a, b = plan.groups[group]
        rows = int(chunks.rows[a:b].sum())
        learners = [
            learner_of(Assignment(p, plan, n, group, rows, job.source, store)) for n, p in enumerate(job.problems)
        ]
        scratch = Scratch(0)
        for learner in learners:
            state = learner.problem.setting.shared(job.source.n_features, plan.dtype)
            learner.begin(state, Lesson(learner.number))
            learner.begin_segment(epoch, 0)
        for chunk in range(a, b):
            print(chunk, flush=True)
            for block in stream.blocks([np.array([chunk])]):
                for learner in learners:
                    learner.take(block, scratch)
    stream.close()


if __name__ == "__main__":
    main()
