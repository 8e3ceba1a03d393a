"""Ways to a cluster: a client, a cluster object, an address, or processes started here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import dask
import distributed
import psutil

from bigclf import tls
from bigclf.cluster.book import Patience
from bigclf.errors import ClusterError
from bigclf.processes import PARENT
from bigclf.texts import LIBRARIES, guard_logs, remember

if TYPE_CHECKING:
    from distributed import SpecCluster


log = logging.getLogger("bigclf")
REFUSAL_SECONDS = 4.0  # for a scheduler that is only starting to listen; then a closed port is an error
AGAIN_SECONDS = 3.0  # for a scheduler whose connection was lost; it is asked again
GREETING_SECONDS = 60.0  # for a new worker to import, and to load its kernels
WAIT_LONGER = (
    "; a machine that is busy with other things starts workers slowly: try again, with more patience"
    " (--patience idle=SECONDS, cluster.patience of a job, Workers(..., patience={'idle': SECONDS})) or fewer workers"
)
MORE_PROCESSES = (
    "; where the system limits processes and threads (ulimit -u; --pids-limit of docker run, TasksMax of a systemd"
    " unit) raise the limit, or give fewer workers"
)
SPAN = {"name": ("bigclf",), "ids": ("bigclf",)}  # of Dask's dashboard
CHILD = "bigclf.processes"  # what a process started here loads first
LEFT = "ignore:resource_tracker:UserWarning"  # processes started here are killed, and leave their semaphores to it
SELDOM = "1s"  # how often servers started here look at their clocks and tasks: 50 and 100 times take 4 % of a core each


class Closes(Protocol):
    def close(self) -> object: ...


class Link:
    """A connection to a cluster; what was opened for it is closed with it."""

    def __init__(self, client: distributed.Client, closing: list[Closes]) -> None:
        self.client, self._closing = client, closing
        self._call: Any = None
        self.address = client.scheduler.address if client.scheduler is not None else None
        self.security = client.security

    def count(self, limit: float) -> int:
        """Workers there are now; waits for the first one.

        Raises
        ------
        ClusterError : none came within ``limit`` seconds.
        """
        deadline = time.monotonic() + limit
        while True:
            found = self.count_now()
            self.call(not found)
            if found:
                return found
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no worker came to {self.address} within {limit:.0f} s; start workers and try again"
                )
            time.sleep(0.1)

    def count_now(self) -> int:
        """Workers there are now; maybe none."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def call(self, wanted: bool) -> None:
        """Where nobody is there let a task wait for somebody: a cluster that adapts itself starts workers for tasks."""
        if not wanted:
            self._call = None
        elif self._call is None or self._call.status in ("cancelled", "error"):
            with contextlib.suppress(Exception):  # the connection is lost
                self._call = submitted(self.client, os.getpid, key=("bigclf-call", time.monotonic_ns()), pure=False)

    def again(self) -> bool:
        """Connect anew where the client has given up; False if that does not work now."""
        if self.address is None:
            return False
        try:
            shake_hands(self.address, self.security, AGAIN_SECONDS)
            self.client = distributed.Client(
                self.address, security=self.security, timeout=AGAIN_SECONDS, set_as_default=False
            )
        except (OSError, TimeoutError):
            return False
        self._closing.insert(0, self.client)
        return True

    def close(self) -> None:
        self._call = None
        for thing in self._closing:
            with contextlib.suppress(Exception):
                thing.close()
        self._closing = []


def submitted(
    client: distributed.Client, function: Callable[..., object], *args: object, **words: object
) -> distributed.Future:
    """``client.submit``, in one span for all that bigclf asks for, unless the caller has one.

    A task without one begins a new span where none is under way, and the scheduler keeps each, and the workers times
    of each, as long as they live.
    """
    with dask.annotate(**({} if "span" in dask.get_annotations() else {"span": SPAN})):
        return client.submit(function, *args, **words)


def connect(workers: object, timeout: float = 10.0, patience: float = Patience().idle) -> Link:
    """A link to what ``workers`` names: a client, a cluster object, an address, or a number of processes to start here,
    which have ``patience`` seconds to come up.

    Raises
    ------
    ClusterError : nothing answers at the address.
    ValueError : it is none of these.
    """
    if isinstance(workers, distributed.Client):
        if workers.asynchronous:
            raise ValueError("workers is an asynchronous client; bigclf.fit blocks and needs a synchronous one")
        return _link_of(workers, [])
    if isinstance(workers, int) and not isinstance(workers, bool):
        return _start_processes(workers, patience)
    if isinstance(workers, str) and not re.search(r":\d+$", workers):
        raise ClusterError(f"no Dask scheduler answers at {workers!r}: there is no port, as in tcp://host:8786")
    if isinstance(workers, str):
        return _reach(workers, timeout)
    if hasattr(workers, "scheduler_address"):
        try:
            client = distributed.Client(workers, timeout=timeout, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {workers!r}: {_reason(error)}") from None
        return _link_of(client, [client])
    raise ValueError(
        f"workers must be a number of processes, a scheduler's address, a Dask client or a cluster, not {workers!r}"
    )


def _link_of(client: distributed.Client, closing: list[Closes]) -> Link:
    """A link of a client that was made elsewhere, or to a cluster that was."""
    link = Link(client, closing)
    if link.address is not None:
        warn_of_plain(link.address)
    return link


@contextlib.contextmanager
def certificates(authority: str | None, certificate: str | None, key: str | None) -> Iterator[None]:
    """While inside, connections use these files for TLS; where none is given, what Dask's configuration says.

    Parameters
    ----------
    authority : certificates that are believed, PEM. certificate, key : of this process, PEM.
    """
    given = {"ca-file": authority, "client.cert": certificate, "client.key": key}
    named = {f"distributed.comm.tls.{name}": path for name, path in given.items() if path is not None}
    if named:
        named["distributed.comm.require-encryption"] = True  # type: ignore[assignment]
    with dask.config.set(named):
        yield


def certificates_named() -> tls.Files:
    """What Dask's configuration says of the certificates of this process."""
    named = distributed.Security().get_tls_config_for_role("client")
    return tls.Files(named["ca_file"], named["cert"], named["key"])


def _reach(address: str, timeout: float) -> Link:
    """A link to the scheduler at an address, with the certificates that Dask's configuration names."""
    remember([address])
    guard_logs(*LIBRARIES)
    if "@" in address:
        raise ClusterError(f"{address!r} is no scheduler's address: Dask takes no user names and passwords; write"
                           " tcp://HOST:PORT, or tls://HOST:PORT with certificates")  # fmt: skip
    given = certificates_named()
    if (reason := tls.refusal(address, given, dask.config.get("distributed.comm.require-encryption"))) is not None:
        raise ClusterError(f"no connection to {address!r}: {reason}")
    if refuses(address):
        raise ClusterError(f"no Dask scheduler answers at {address!r}: the port refuses connections; start one there"
                           " (`dask scheduler`), or correct the address")  # fmt: skip
    warn_of_plain(address)
    try:
        shake_hands(address, distributed.Security(), timeout)
        client = distributed.Client(address, timeout=timeout, set_as_default=False)
    except MemoryError:  # the first letters of an answer in another language, taken for its length
        raise ClusterError(f"what answers at {address!r} is no Dask scheduler (an HTTP server, such as the dashboard?);"
                           " look at the port, which `dask scheduler` says as it starts") from None  # fmt: skip
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        if (reason := tls.explanation(address, given, error)) is not None:
            raise ClusterError(f"no connection to {address!r}: {reason}") from None
        if TimeoutError in (type(error), type(error.__cause__)) and accepts(address):
            raise ClusterError(
                f"no Dask scheduler answers at {address!r}: the connection was accepted, and then nothing was said for "
                f"{timeout:g} s. Is the scheduler stopped or overloaded, or is something else at that port (a tunnel "
                "or a proxy with nothing behind it)? Look at the scheduler's log, or start it anew"
            ) from None
        raise ClusterError(f"no Dask scheduler answers at {address!r}: {_reason(error)}") from None
    return Link(client, [client])


def _reason(error: BaseException) -> str:
    """What an error says; some say nothing but in what they came of, or in their name."""
    told = error
    while not str(told) and told.__cause__ is not None:
        told = told.__cause__
    return str(told) or type(told).__name__


def shake_hands(address: str, security: distributed.Security, timeout: float) -> None:
    """Exchange greetings with a scheduler: Dask's client, whatever its timeout, waits without end for the other's.

    Raises
    ------
    TimeoutError : it was silent for ``timeout`` seconds. OSError and others : as Dask's client.
    """

    async def greet() -> None:
        options = security.get_connection_args("client")
        comm = await asyncio.wait_for(distributed.comm.connect(address, timeout=timeout, **options), timeout)
        comm.abort()

    with ThreadPoolExecutor(1) as apart:  # a notebook has a loop of its own in this thread
        apart.submit(asyncio.run, greet()).result()


def refuses(address: str) -> bool:
    """Whether the host says for ``REFUSAL_SECONDS`` that nothing listens there: Dask would ask until its timeout."""
    end = time.monotonic() + REFUSAL_SECONDS
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection(tls.place_of(address)[1:], timeout=left).close()
        except ConnectionRefusedError:
            time.sleep(min(0.1, left))
        except (OSError, ValueError):  # Dask says what else is wrong
            return False
        else:
            return False
    return True


def accepts(address: str) -> bool:
    """Whether a connection to there can be opened at once, whatever comes of it."""
    try:
        socket.create_connection(tls.place_of(address)[1:], timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


def warn_of_plain(address: str) -> None:
    """Warn of a scheduler on another host to which nothing is encrypted."""
    if tls.is_plain(address):
        log.warning("the connection to %s is not encrypted: data, models and code can be read and changed on the way; "
                    "use tls://, and %s", address, tls.HOW)  # fmt: skip


def _start_processes(n: int, patience: float) -> Link:
    """Workers on this machine, each a process under a nanny; started anew from the command line, not by forking or
    importing the caller's main module."""
    from distributed.deploy.spec import SpecCluster
    from distributed.deploy.subprocess import SubprocessScheduler, SubprocessWorker

    class Worker(SubprocessWorker):
        """A nanny and its worker, ended at once but for what removes the names of their semaphores."""

        async def close(self) -> None:
            if self.process is not None and self.process.returncode is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    _end_below(self.process.pid)
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
                await self.process.wait()
            self.process = None
            await super().close()

    here = {"host": "127.0.0.1", "preload": CHILD}
    nanny = {
        "nthreads": 1,
        "memory_limit": 0,
        "dashboard": False,
        "preload_nanny": CHILD,
        "silence_logs": logging.CRITICAL,
    }
    options = {"port": 0, "dashboard": False, "dashboard_address": None}
    encrypted = "distributed.comm.require-encryption"  # of what leaves a machine, and these do not
    tick, profile = "distributed.admin.tick.interval", "distributed.worker.profile.interval"
    with (
        _environment(PARENT, str(os.getpid())),
        _environment("DASK_LOGGING__DISTRIBUTED", "critical"),  # what there is to say reaches the run as events
        _environment("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "false"),
        _environment("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", SELDOM),
        _environment("DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL", SELDOM),
        _environment("PYTHONWARNINGS", ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), LEFT)))),
        dask.config.set({encrypted: False, tick: SELDOM, profile: SELDOM}),
    ):
        worker = {"cls": Worker, "options": {"worker_kwargs": {**here, **nanny}}}
        scheduler = {"cls": SubprocessScheduler, "options": {"scheduler_kwargs": {**here, **options}}}
        try:
            cluster = SpecCluster(dict.fromkeys(range(n), worker), scheduler, worker, silence_logs=logging.CRITICAL)
        except RuntimeError as error:
            if "Scheduler failed to start" in str(error):
                raise ClusterError(f"the scheduler of {n} processes did not start{MORE_PROCESSES}") from error
            raise
        client = distributed.Client(cluster, set_as_default=False)
    processes = _Processes(cluster)
    link = Link(client, [client, processes])
    limit = max(patience, GREETING_SECONDS)
    deadline = time.monotonic() + limit
    try:
        while (code := processes.ended()) is not None or (found := link.count_now()) < n:
            if code is not None:
                raise ClusterError(f"{n} processes did not all start: one ended, with exit code {code}{MORE_PROCESSES}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{n} processes did not all start: {found} did in {limit:.0f} s{WAIT_LONGER}")
            time.sleep(0.05)
    except BaseException:  # what was started does not outlive a Ctrl-C
        link.close()
        raise
    return link


def _end_below(pid: int) -> None:
    """Kill all that a process started but multiprocessing's tracker: that ends with the last of them, and removes the
    names of semaphores, which the system keeps else until it is started anew."""
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if not any("multiprocessing.resource_tracker" in word for word in child.cmdline()):
                child.kill()


class _Processes:
    """Closes processes started here, also where Dask cannot because its scheduler is dead."""

    def __init__(self, cluster: SpecCluster) -> None:
        self._cluster = cluster

    def _started(self) -> list[asyncio.subprocess.Process]:
        both = [self._cluster.scheduler, *self._cluster.workers.values()]
        return [each.process for each in both if each.process is not None]

    def ended(self) -> int | None:
        """The exit code of one that is over; None while all run."""
        return next((process.returncode for process in self._started() if process.returncode is not None), None)

    def close(self) -> None:
        started = self._started()
        with contextlib.suppress(Exception), dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
            self._cluster.close(timeout=5)
        for process in started:
            with contextlib.suppress(OSError):  # it is over
                process.kill()


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """For processes started meanwhile, which keep it."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
