"""Train on whatever gives a Dask client: a cluster that runs already, or one that is started here.

python cluster/any-client/train.py DATA MODEL [ADDRESS]
"""

import sys

from distributed import Client, LocalCluster

import bigclf


def main(data: str, model: str, address: str | None = None) -> None:
    # One thread a worker: bigclf makes one visit at a time a process. Instead of LocalCluster: SLURMCluster and its
    # like (dask-jobqueue), KubeCluster (dask-kubernetes), a cloud's ... whatever Client takes.
    cluster = address or LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=None)
    with Client(cluster) as client:
        trained = bigclf.fit(data, algo="pa2", workers=client)
    trained.save(model)


if __name__ == "__main__":  # workers import this file
    main(*sys.argv[1:])
