"""Workers keep memory that was freed, whatever Dask's nanny tells the C library."""

import os
import subprocess
import sys


def test_a_worker_keeps_the_memory_of_arrays_for_the_next():
    text = """if True:
        import resource
        import numpy as np
        from bigclf.training.memory import keep_freed
        def faults():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(20):
                np.ones(250_000)
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        print(faults(), keep_freed(), faults(), faults())
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}  # a nanny's, of tests
    told = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env=env).stdout.split()
        for env in ({**plain, "MALLOC_TRIM_THRESHOLD_": "65536"}, plain)
    ]
    assert [each[1] for each in told] == ["True", "False"]  # who was told nothing is left alone
    assert int(told[0][0]) > 20 * 400 and int(told[0][3]) < 20 * 40


def test_a_driver_keeps_the_memory_of_what_it_takes_in_for_the_next():
    text = """if True:
        import resource
        import numpy as np
        from bigclf.training.memory import reuse_freed
        def faults():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(10):
                [np.ones(1_500_000) for _ in range(3)]
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        print(faults(), faults(), reuse_freed(), faults(), faults())
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env=plain).stdout
    before, after = int(told.split()[1]), int(told.split()[4])
    assert after < 300 < before / 10
