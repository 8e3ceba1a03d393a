"""The lease of a run directory: one process at a time is at work there, whatever the clocks say.

A clock may jump by an hour, and two hosts seldom agree to the second. So a process of this host is known by its number
and the tick of its start, counted from the start of the machine. Of a process of another host there is only what it
writes: a lease that looks fresh is believed, one that looks old or comes from the future is watched for some
heartbeats, measured by waiting and not by comparing clocks, and taken over only if it did not change meanwhile.
A process that was taken for dead and is not finds another one's token in the file and stops.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

from bigclf import files
from bigclf.errors import RunError

log = logging.getLogger("bigclf")
ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"


class Timing(NamedTuple):
    """Seconds between heartbeats; age up to which a lease of another host is believed; heartbeats it is watched for."""

    heartbeat: float = 10.0
    fresh: float = 60.0
    beats: int = 3


class Clock(NamedTuple):
    """``now`` is the wall clock, which is read for people and for the first look only; ``pause`` waits so long."""

    now: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep


class Signature(TypedDict):
    """What tells a process from every other one."""

    host: str
    pid: int
    started: float
    birth: dict[str, object] | None


class Owner(Signature):
    """What a lease says of who holds it."""

    heartbeat: float
    token: str | None
    beat: int | None


class Lease:
    """The file ``path``, held by one process at a time.

    Attributes
    ----------
    lost : what another process has written there, once it has taken the lease over; else None.
    """

    def __init__(self, path: str, timing: Timing | None = None, clock: Clock | None = None) -> None:
        self.path, self.timing, self.clock = path, timing or Timing(), clock or Clock()
        self.lost: Owner | None = None
        self._token, self._beats = "", 0
        self._stop: threading.Event | None = None
        self._writing = threading.Lock()  # a heartbeat under way must not bring back what release removes

    @property
    def held(self) -> bool:
        return self._stop is not None

    def require_free(self) -> None:
        """Look whether another process holds the lease; RunError, as of ``acquire``, where one does."""
        owner = self.owner()
        if owner is not None and not self.held:
            self._require_dead(owner)

    def acquire(self) -> None:
        """Take the lease, and keep it fresh from a thread until ``release``.

        Raises
        ------
        RunError : another process holds it; the message names its host, its number and its last sign of life.
        """
        if self.held:
            return
        with files.in_turn(self._directory):  # of two that begin at the same moment one finds the other's lease
            self.require_free()
            self._token, self._beats, self.lost = secrets.token_hex(8), 0, None
            self._write()
            self.check()  # where nothing is locked, the one that wrote first learns of the other
        self._stop = threading.Event()
        threading.Thread(target=self._beat_on, args=(self._stop,), daemon=True).start()

    def release(self) -> None:
        """Give the lease back; safe to call twice."""
        if self._stop is None:
            return
        with self._writing, contextlib.suppress(OSError):
            self._stop.set()
            self._stop = None
            if self._is_mine(self.owner()):
                files.remove(self.path)

    def check(self) -> None:
        """Look whether the lease is still ours; RunError if another process has taken it over."""
        owner = self.owner()
        if self._token and not self._is_mine(owner):
            self.lost = owner
        if self.lost is not None:
            raise RunError(
                f"{self._directory} was taken over by process {self.lost['pid']} on {self.lost['host']}; "
                "this process writes nothing more there"
            )

    def owner(self) -> Owner | None:
        """What the file says: host, pid, started, heartbeat, and (not in older files) birth, token and beat."""
        try:
            owner: Owner = json.loads(files.read_text(self.path))
            if not isinstance(owner["host"], str) or not all(
                _is_number(number) for number in (owner["pid"], owner["started"], owner["heartbeat"])
            ):
                return None
            return {"birth": None, "token": None, "beat": None, **owner}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def _directory(self) -> str:
        return files.parent_directory(self.path)

    def _is_mine(self, owner: Owner | None) -> bool:
        """A file that is missing or cannot be read is nobody's: the next heartbeat writes it again."""
        return owner is None or owner["token"] == self._token

    # Whether the owner lives

    def _require_dead(self, owner: Owner) -> None:
        age = self.clock.now() - owner["heartbeat"]
        state = state_of(owner, age, self.timing)
        if state == UNKNOWN:
            seen, state = self._watch(owner, age)
            age = 0.0 if seen != owner else age
        if state == ALIVE:
            raise RunError(
                f"{self._directory} is in use by process {owner['pid']} on {owner['host']} "
                f"(last sign of life {max(age, 0):.0f} s ago); wait for it or use another run directory"
            )

    def _watch(self, owner: Owner, age: float) -> tuple[Owner | None, str]:
        """The lease after some heartbeats, and whether its owner lives. Only waiting counts, no clock is compared."""
        when = f"{age:,.0f} s old" if age >= 0 else f"{-age:,.0f} s in the future"
        name = f"the lease of process {owner['pid']} on {owner['host']}"
        seconds = self.timing.heartbeat * self.timing.beats
        log.warning("%s looks %s by this host's clock; watching it for %.0f s", name, when, seconds)
        for _ in range(2 * self.timing.beats + 1):
            self.clock.pause(self.timing.heartbeat / 2)
            files.probe_writable(self._directory)  # after a change of ours a network file system asks its server anew
            seen = self.owner()
            if seen != owner:
                return seen, DEAD if seen is None else ALIVE
        log.warning("%s did not change for %.0f s: taken over", name, seconds)
        return owner, DEAD

    # Signs of life

    def _write(self) -> None:
        self._beats += 1
        owner = signature() | {"heartbeat": self.clock.now(), "token": self._token, "beat": self._beats}
        files.publish_text(self.path, json.dumps(owner))

    def beat(self) -> None:
        """Give a sign of life, if the lease is held; RunError if it is another's by now."""
        with self._writing:
            if self.held:
                self.check()
                self._write()

    def _beat_on(self, stop: threading.Event) -> None:
        while not stop.wait(self.timing.heartbeat):
            try:
                self.beat()
            except OSError:  # a full disk, or one that is away for a while: the next one may do
                continue
            except RunError as error:
                log.warning("%s", error)
                return


@contextlib.contextmanager
def holding(directory: str | os.PathLike[str], name: str = "lease") -> Iterator[None]:
    """Hold the lease ``name`` in ``directory`` while inside.

    Raises
    ------
    RunError : another process holds it.
    """
    lease = Lease(files.join(files.absolute(directory), name))
    try:
        lease.acquire()
        yield
    finally:
        lease.release()


def require_free(directory: str | os.PathLike[str], below: bool = True) -> None:
    """RunError where a process holds the lease in ``directory`` or, ``below``, in a directory of it."""
    directory = files.absolute(directory)
    if not below:
        Lease(files.join(directory, "lease")).require_free()
        return
    for name in files.list_directory(directory):
        if name == "lease":
            Lease(files.join(directory, name)).require_free()
        elif files.exists(files.join(directory, name, "lease")):
            Lease(files.join(directory, name, "lease")).require_free()


def signature() -> Signature:
    """What tells this process from every other one, as ``state_of`` reads it: host, pid, started, birth."""
    birth = birth_of(os.getpid())
    return {
        "host": socket.gethostname(), "pid": os.getpid(), "started": _created(os.getpid()),
        "birth": None if birth is None else birth._asdict(),
    }  # fmt: skip


def state_of(owner: Mapping[str, Any], age: float, timing: Timing) -> str:
    """ALIVE, DEAD or UNKNOWN: what is known of the owner of a lease at a glance.

    Parameters
    ----------
    owner : what its lease says.
    age : seconds since its heartbeat, by this host's clock.
    """
    if owner["host"] != socket.gethostname():
        return ALIVE if -timing.heartbeat < age < timing.fresh else UNKNOWN
    mine, birth = birth_of(os.getpid()), owner["birth"]
    if mine is None or not isinstance(birth, dict):
        return _state_by_clock(int(owner["pid"]), owner["started"])
    if (birth.get("boot"), birth.get("space")) != (mine.boot, mine.space):
        return UNKNOWN  # a machine or container of the same name, or this one before it started anew
    theirs = birth_of(int(owner["pid"]))
    return ALIVE if theirs is not None and theirs.tick == birth.get("tick") else DEAD


class Birth(NamedTuple):
    """What no other process has, with its number: start of the machine, space of process numbers, tick of its start."""

    boot: str
    space: str
    tick: int


def birth_of(pid: int) -> Birth | None:
    """The birth of a living process (a zombie is dead), or None; always None where there is no /proc."""
    try:
        # pid (name) state ...: the name may hold blanks and brackets; the 22nd field is the start in clock ticks
        fields = files.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        boot = files.read_text("/proc/sys/kernel/random/boot_id").strip()
        return None if fields[0] in "ZXx" else Birth(boot, files.link_target("/proc/self/ns/pid"), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _state_by_clock(pid: int, started: float) -> str:
    """For systems without /proc and for older leases: by the time of the start, which may shift on Linux."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return DEAD
        return ALIVE if abs(process.create_time() - started) < 1.0 else UNKNOWN
    except psutil.NoSuchProcess:
        return DEAD
    except psutil.Error:
        return UNKNOWN


def _created(pid: int) -> float:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
