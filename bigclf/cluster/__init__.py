"""Workers of a Dask cluster make the visits of a run, with the bits of a run in one process.

Read ``engine`` (visits as tasks) and ``book`` (whose result counts). ``tree`` says who joins what groups came to;
``joining`` is its side at the driver, ``holdings`` and ``peers`` are that of the workers. ``link`` finds the cluster,
``worker_tasks`` are the functions that travel; ``crash_trial`` finds the chunk a worker dies of, ``cluster_survey``
looks before a run.
"""
