"""Name every call by which a process changes files below a directory, and let one of them go wrong.

``Recorder`` stands between Python and the system: what ``bigclf.files`` and the libraries behind it ask for is noted as
a point, "operation file", before it is done. At the point that it is told of, the process dies as by SIGKILL ("kill"),
the disk is full from then on ("ENOSPC"), or the device fails once ("EIO"). Half of what is written there is written.
Or it stands still before the call ("hold"), before each of several ("steps"). "tell" lets each point say in which state
the directory is, and what the process has learned of it so far.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import functools
import hashlib
import io
import os
import re
import stat
import threading
from collections import Counter

NAMED = ("replace", "rename", "link", "symlink", "unlink", "remove", "rmdir", "mkdir", "chmod", "utime", "truncate")
OPENED = ("fsync", "fdatasync", "ftruncate", "posix_fallocate", "write", "pwrite", "sendfile", "copy_file_range")
NEED_ROOM = {"link", "symlink", "mkdir", "open", "lock", "write", "pwrite", "sendfile", "copy_file_range",
             "posix_fallocate", "ftruncate", "truncate"}  # fmt: skip
READING = ("stat", "lstat", "listdir", "scandir", "access", "readlink")
# done to a file of its own that has no name yet, nobody sees it
QUIET = {"write", "pwrite", "ftruncate", "truncate", "posix_fallocate", "sendfile", "copy_file_range", "chmod", "utime"}
TEMPORARY = re.compile(r"\.tmp-(\d+)-[0-9a-f]{8}")
CHANGING = os.O_CREAT | os.O_WRONLY | os.O_RDWR
KILLED = 137
# what differs from run to run in the names of files
RANDOM = [(r"\.tmp-\d+-[0-9a-f]{8}", ".tmp"), (r"/#\d+( \(deleted\))?", "/nameless"), (r"[0-9a-f]{16,}", "HASH"),
          (r"bigclf-[a-z0-9_]{8}(?=/|$)", "bigclf-RANDOM"), (r"\.probe-[a-z0-9_]{8}", ".probe")]  # fmt: skip


class Recorder:
    """Notes points below ``root``; ``fault`` : a kind and the point it comes at, a name and which of that name, or the
    number of the call, from 1. Of "steps" these are all the points, each a name and which.

    Attributes
    ----------
    points : the points, in their order; paths : of each the path, whole.
    moments : with "tell", of each (state of the directory as another process sees it, how often before the point the
        process looked at the directory, or changed what others see).
    peeked : files of other living processes that have no name yet, and were opened to be read.
    """

    def __init__(self, root, fault=None, dying=None, standing=None):
        self.root, self.fault, self.dying, self.standing = os.path.realpath(root), fault, dying, standing
        self.points, self.paths, self._seen, self._full = [], [], Counter(), False
        self._lock, self._inside = threading.Lock(), threading.local()
        self.moments, self.peeked, self._learned = [], [], 0
        self._tells = fault is not None and fault[0] == "tell"

    def install(self, native=False):
        real = {name: getattr(os, name) for name in (*NAMED, *OPENED, "open")}
        self._pwrite, self._real_open = real["pwrite"], builtins.open
        for name in NAMED:
            setattr(os, name, self._by_name(name, real[name]))
        for name in OPENED:
            setattr(os, name, self._by_descriptor(name, real[name]))
        os.fsync = self._by_descriptor("fsync", os.fstat)  # no power is cut here
        os.open = self._opening(real["open"])
        fcntl.flock = self._locking(fcntl.flock)
        builtins.open = io.open = self._file
        for name in READING if self._tells else ():
            setattr(os, name, self._reading(getattr(os, name)))
        if not native:
            self._libraries()

    # The calls

    def _by_name(self, name, call):
        def act(path, *rest, **options):
            self._step("unlink" if name == "remove" else name, self._place(path, options.get("dir_fd")))
            return call(path, *rest, **options)

        return act

    def _by_descriptor(self, name, call):
        def act(descriptor, *rest):
            half = None
            if name in ("write", "pwrite"):
                view = memoryview(rest[0]).cast("B")
                half = functools.partial(call, descriptor, view[: view.nbytes // 2], *rest[1:])
            self._step(name, _of_descriptor(descriptor), half)
            return call(descriptor, *rest)

        return act

    def _opening(self, call):
        def act(path, flags, *rest, **options):
            if flags & CHANGING and not os.fspath(path).startswith("/proc/"):
                self._step("open", self._place(path, options.get("dir_fd"), flags))
            else:
                self._read(path, options.get("dir_fd"))
            return call(path, flags, *rest, **options)

        return act

    def _reading(self, call):
        def act(path=".", *rest, **options):
            self._read(path, options.get("dir_fd"), opens=False)
            return call(path, *rest, **options)

        return act

    def _read(self, path, directory=None, opens=True):
        """Something is looked at, or opened for reading."""
        if getattr(self._inside, "now", False):
            return
        with self._unseen():
            place = self._place(path, directory)
            if self._is_below(place):
                other = TEMPORARY.search(place)
                if other and opens and int(other[1]) != os.getpid() and os.path.exists(f"/proc/{other[1]}"):
                    self.peeked.append(called(os.path.relpath(place, self.root)))
                self._learned += not self._is_own(place)

    def _is_own(self, path):
        """Whether it is a file of this process that has no name yet."""
        return f".tmp-{os.getpid()}-" in path or "/#" in path

    def _locking(self, call):
        def act(file, operation):
            if operation & fcntl.LOCK_EX:
                self._step("lock", _of_descriptor(file if isinstance(file, int) else file.fileno()))
            return call(file, operation)

        return act

    def _file(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        """``open``, whose files tell of their writes."""
        changing = set(mode) & set("wax+")
        if not changing or not self._is_below(_of_descriptor(file) if isinstance(file, int) else self._place(file)):
            if not changing:
                self._read(file)
            return self._real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        made = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, max(buffering, io.DEFAULT_BUFFER_SIZE))
        return made if "b" in mode else io.TextIOWrapper(made, encoding, errors, newline, buffering == 1)

    def _libraries(self):
        """Those that write by themselves are given such a file, and fail with the words they have for it."""
        import pyarrow
        import safetensors
        import safetensors.numpy

        plain = pyarrow.OSFile

        def native(path, mode="r"):
            if mode == "rb":
                self._read(path)
            return plain(path, mode) if mode == "rb" else pyarrow.PythonFile(self._file(os.fsdecode(path), mode), "w")

        def save_file(tensors, path, metadata=None):
            try:
                with self._file(path, "wb", 0) as file:
                    file.write(safetensors.numpy.save(tensors, metadata))
            except OSError as error:
                raise safetensors.SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from None

        pyarrow.OSFile, safetensors.numpy.save_file = native, save_file

    # The points

    def _place(self, path, directory=None, flags=0):
        if isinstance(path, int):
            return _of_descriptor(path)
        path = os.fsdecode(path)
        if directory is not None:
            path = os.path.join(_of_descriptor(directory), path)
        with self._unseen():
            path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        return f"{path}/#0" if flags & os.O_TMPFILE == os.O_TMPFILE else path

    @contextlib.contextmanager
    def _unseen(self):
        """What the recorder itself looks at is not noted."""
        before, self._inside.now = getattr(self._inside, "now", False), True
        try:
            yield
        finally:
            self._inside.now = before

    def _is_below(self, path):
        return f"{path}/".startswith(f"{self.root}/")

    def _step(self, name, path, half=None):
        if getattr(self._inside, "now", False) or not self._is_below(path):
            return
        with self._unseen():
            self._at(name, path, half)

    def _at(self, name, path, half):
        point = f"{name} {called(os.path.relpath(path, self.root))}"
        with self._lock:
            self.points.append(point)
            self.paths.append(path)
            self._seen[point] += 1
            here = self.fault is not None and self._is_here(point)
            if self._tells:
                self.moments.append((state_of(self.root), self._learned))
                self._learned += not (name in ("fsync", "fdatasync") or (name in QUIET and self._is_own(path)))
            if here and self.fault[0] in ("hold", "steps"):  # and with it all threads, at their next point
                self.dying()
                self.standing()
                return
        if not here and not (self._full and name in NEED_ROOM):
            return
        if half is not None and here:
            half()
        if not here or self.fault[0] == "ENOSPC":
            self._full = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_named(name, path))
        if self.fault[0] == "EIO":
            raise OSError(errno.EIO, os.strerror(errno.EIO), *_named(name, path))
        self.dying()
        os._exit(KILLED)

    def _is_here(self, point):
        key = point, self._seen[point]
        if self.fault[0] == "steps":
            return key in self.fault[1:]
        return self.fault[1:] in (key, (len(self.points),))


def state_of(root):
    """What a process that comes now finds below ``root``: a digest of names, modes, times of change, bytes and locks.
    Of files that have no name of their own yet the bytes do not count: nobody reads them (``peeked``)."""
    found, names = hashlib.blake2b(digest_size=16), {}
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in (*folders, *sorted(files)):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # another thread is at work
                status, short = os.lstat(path), os.path.relpath(path, root)
                names[status.st_ino] = short
                found.update(f"{short} {status.st_mode} ".encode())
                if stat.S_ISREG(status.st_mode) and not TEMPORARY.search(short):
                    found.update(f"{status.st_mtime_ns} {status.st_size} ".encode())
                    with open(path, "rb") as file:
                        found.update(file.read())
    with open("/proc/locks") as file:
        held = [line.split() for line in file]
    places = (names.get(int(words[-3].rpartition(":")[2])) for words in held if "->" not in words)
    found.update(repr(sorted(place for place in places if place)).encode())
    return found.hexdigest()


class _Raw(io.FileIO):
    """A file that tells of being made and of each write."""

    def __init__(self, recorder, file, mode, closefd, opener):
        self._recorder = recorder
        if not isinstance(file, int) and opener is None:
            recorder._step("open", recorder._place(file))
        super().__init__(file, mode, closefd, opener)

    def write(self, data):
        view = memoryview(data).cast("B")
        half = functools.partial(super().write, view[: view.nbytes // 2])
        self._recorder._step("write", _of_descriptor(self.fileno()), half)
        return super().write(data)

    def truncate(self, size=None):
        self._recorder._step("ftruncate", _of_descriptor(self.fileno()))
        return super().truncate(size)


def _named(name, path):
    """The system names the file where it was called by one."""
    return (path,) if name in NAMED or name == "open" else ()


def _of_descriptor(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def called(path):
    """A path without what differs from run to run."""
    for random, name in RANDOM:
        path = re.sub(random, name, path)
    return path


def keys(points):
    """Of each point its name and which of that name it is."""
    seen = Counter()
    for point in points:
        seen[point] += 1
        yield point, seen[point]
