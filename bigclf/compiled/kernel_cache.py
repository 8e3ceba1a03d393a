"""Compiled code on disk that can be trusted: numba's own files with a checksum each, a pair of them a signature.

The directory and its names are bigclf's own, whatever was imported first: numba chooses its directory when it is
imported, and watches only the file a function stands in. Here a name holds a digest of every source that can end in
the machine code: the kernel's module and what it imports of this package, transitively. An edited helper recompiles
all that use it; an edited help text recompiles nothing. What a module of a method says of it to people, below the line
``# Methods``, is no part of that, nor are imports that only this needs.

numba reads back what it finds. A cut or changed file is an exception in the first call, a crash of the process, or
other machine code than was compiled; and where several processes fill an empty cache at once, the index of one may name
the code of another. Here every file ends in a checksum of all before it, a file that does not agree is removed and its
code compiled anew, and no two signatures share a file. What cannot be written is not kept, which costs time only. Who
wants what another process is compiling waits for it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TypeAlias, TypeVar

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.codegen import CPUCodegen
from numba.core.compiler import CompileResult
from numba.core.cpu import CPUContext
from numba.core.serialize import dumps
from numba.core.typing import Signature

from bigclf.files.caches import kernel_cache

A = TypeVar("A")
Key: TypeAlias = tuple[object, ...]  # numba's: a signature, the processor and a digest of the function
log = logging.getLogger("bigclf")
PACKAGE = Path(__file__).parent.parent
SEAL = 16  # bytes
PATIENCE = 120.0  # seconds to wait for a process that compiles the same: it may be frozen


class BeingCompiled(Exception):
    """Another process is compiling the kernel, and nobody is to wait for it now."""


class _Manner(threading.local):
    waits = True


_manner = _Manner()


@contextlib.contextmanager
def waiting(waits: bool) -> Iterator[None]:
    """Whether this thread waits for a kernel that another process is compiling; else ``BeingCompiled`` is raised."""
    before, _manner.waits = _manner.waits, waits
    try:
        yield
    finally:
        _manner.waits = before


# What it is made of

# "from bigclf.a import b, c" and "import bigclf.a" at the left margin: inside a function they name no kernel's globals
IMPORTED = re.compile(r"^(?:from (bigclf[\w.]*) import (\([^)]*\)|.*)|import (bigclf[\w.]*))", re.MULTILINE)
BESIDE = re.compile(r"#.*| as \w+")  # no names of what is imported
NAMES = re.compile(r"#.*|\w+ as ")  # ... and no names but those that are bound
DECLARED = "\n# Methods\n"  # below this line no kernel stands, and none above uses what is bound there
WORDS = re.compile(r'"""(?:.|\n)*?"""|#.*|(?<![\w.])[A-Za-z_]\w*')  # of code; text and comments apart
CHOICES = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "USING_SVML",
           "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS")  # fmt: skip


@functools.cache
def _compiler() -> tuple[str, ...]:
    """Versions and options that change machine code; the processor is in numba's own key of a signature."""
    versions = numba.__version__, llvmlite.__version__, np.__version__
    return *versions, *(f"{name}={getattr(config, name, None)!s}" for name in CHOICES)


def _module_file(name: str) -> Path | None:
    """The source of a module of this package; None for another name."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    places = (path.with_suffix(".py"), path / "__init__.py") if path != PACKAGE else (path / "__init__.py",)
    return next((place for place in places if place.is_file()), None)


@functools.cache
def _source(path: Path) -> tuple[bytes, tuple[Path, ...]]:
    """A digest of a file, and the files of this package that it imports; read once, when what it holds is loaded.

    ``from bigclf.a import b`` names the module bigclf.a.b, or else something in bigclf.a.
    """
    text, mark, _ = path.read_bytes().decode().partition(DECLARED)
    used = set(WORDS.findall(IMPORTED.sub("", text))) if mark else set()
    found: list[Path | None] = []
    for package, names, module in IMPORTED.findall(text):
        if mark and names and used.isdisjoint(re.findall(r"\w+", NAMES.sub("", names))):
            continue
        submodules = [_module_file(f"{package}.{name}") for name in re.findall(r"\w+", re.sub(BESIDE, "", names))]
        found += submodules if submodules and all(submodules) else [*submodules, _module_file(package or module)]
    return hashlib.blake2b(text.encode()).digest(), tuple(path for path in found if path)


def sources(paths: Iterable[Path]) -> set[Path]:
    """These files and all files of this package that they import, transitively."""
    found: set[Path] = set()
    todo = [*paths]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _source(path)[1]
    return found


def reached(function: FunctionType) -> set[FunctionType]:
    """The Python functions that a kernel may have pasted into it: those its code names and those it was made with, and
    theirs. A kernel made by a function may be made with what its module does not import."""
    found: set[FunctionType] = set()
    todo: list[object] = [function]
    while todo:
        one = _as_python(todo.pop())
        if isinstance(one, (tuple, list)):
            todo += one
        elif isinstance(one, FunctionType) and one not in found and _ours(one, function):
            found.add(one)
            todo += _named(one)
    return found


def _ours(one: FunctionType, kernel: FunctionType) -> bool:
    """Whether it is of this package or the kernel's own; the compiler's version stands for other libraries."""
    return one.__module__.partition(".")[0] in ("bigclf", kernel.__module__.partition(".")[0])


def _named(function: FunctionType) -> list[object]:
    """What a function was made with, and the globals that its code names, in modules, too."""
    made_with = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            made_with.append(cell.cell_contents)
    names = _names(function.__code__)
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [one for one in named if isinstance(one, ModuleType) and one.__name__.startswith("bigclf")]
    return made_with + named + [vars(module)[name] for module in modules for name in names if name in vars(module)]


def _names(code: CodeType) -> set[str]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _made_with(function: FunctionType) -> tuple[object, ...]:
    """What a function was made with, as every process tells it: a helper by its place, its code and what that was made
    with (numba writes a number of the process's own into one), anything else as its bytes."""
    return tuple(_as_told(cell.cell_contents) for cell in function.__closure__ or ())


@contextlib.contextmanager
def _named_apart(function: FunctionType) -> Iterator[None]:
    """numba names machine code by the function's name and a number of the process's own. Of two functions that one
    factory makes, for two losses say, each compiled by another process, both would have the same name, and a process
    that loads both would call one where the other is meant."""
    name = function.__qualname__
    if function.__closure__:
        function.__qualname__ = f"{name}_{_sha256(repr(_made_with(function)).encode())[:16]}"
    try:
        yield
    finally:
        function.__qualname__ = name


def _as_told(value: object) -> object:
    one = _as_python(value)
    if isinstance(one, FunctionType):
        code = one.__code__
        return one.__module__, one.__qualname__, code.co_firstlineno, _sha256(code.co_code), _made_with(one)
    return tuple(_as_told(each) for each in one) if isinstance(one, (tuple, list)) else dumps(value)


def _as_python(one: object) -> object:
    """The Python function of a kernel or an intrinsic; anything else as it is."""
    return getattr(one, "py_func", getattr(one, "_defn", one))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(paths: Iterable[Path]) -> str:
    """Hex digest of the compiler and these files. A file of this package is known by its place in it, so that equal
    packages share their kernels; another one by its path."""
    digest = hashlib.blake2b(repr(_compiler()).encode(), digest_size=8)
    for path in sorted(paths):
        name = path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path
        digest.update(name.as_posix().encode() + b"\0" + _source(path)[0])
    return digest.hexdigest()


# How it is written and read


def _seal(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=SEAL).digest()


class SealedFiles(IndexDataCacheFile):
    """The index and the code of one signature; unpickling stops before the checksum behind."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            yield (held := io.BytesIO())
            file.write(held.getvalue() + _seal(held.getvalue()))

    def _load_index(self) -> dict[Key, str]:
        return (_read(self._index_path, super()._load_index) or {}) if _is_whole(self._index_path) else {}

    def load(self, key: Key) -> object:
        """What was saved under ``key``, or None when it is not there, not whole or not to be read."""
        name = self._load_index().get(key)
        if name is None or not _is_whole(self._data_path(name)):
            return None
        return _read(self._data_path(name), lambda: self._load_data(name))


def _read(path: str, load: Callable[[], A]) -> A | None:
    """What ``load`` makes of a whole file; None where that cannot be unpickled, since it names what is not there."""
    try:
        return load()
    except FileNotFoundError:  # removed by another process meanwhile
        return None
    except Exception as error:
        log.warning("compiled code in %s cannot be read (%s): compiled anew", path, error)
        return None


def _is_whole(path: str) -> bool:
    """Whether the file is there and as it was written; one that is not is removed."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return False
    if len(content) > SEAL and _seal(content[:-SEAL]) == content[-SEAL:]:
        return True
    log.warning("compiled code in %s is damaged: removed and compiled anew", path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return False


class SignatureFiles:
    """``SealedFiles`` for each signature of one function, named by a digest of the signature."""

    def __init__(self, directory: str, base: str, stamp: str) -> None:
        self.directory, self.base, self.stamp = directory, base, stamp

    def name(self, key: Key) -> str:
        return f"{self.base}-{hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"

    def of(self, key: Key) -> SealedFiles:
        return SealedFiles(self.directory, self.name(key), self.stamp)

    def lock(self, key: Key) -> str:
        """Path of a file that is locked while the signature is compiled."""
        return os.path.join(self.directory, self.name(key) + ".lock")

    def load(self, key: Key) -> object:
        return self.of(key).load(key)

    def save(self, key: Key, data: object) -> None:
        self.of(key).save(key, data)


class Place(_CacheLocator):
    """Where a function's code is kept, and the digest it is kept under.

    Raises
    ------
    RuntimeError : there is no file of the function's source, whose changes would be seen.
    """

    def __init__(self, function: FunctionType) -> None:
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno
        self.function = function
        try:
            self.known = sources([Path(self._py_file), Path(__file__).with_name("jit.py")])
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeError(f"{function.__qualname__} has no source file: {error}") from None

    @functools.cached_property
    def digest(self) -> str:
        """Known when the function is first called: only then are all there that it calls."""
        return _digest(self.known | sources(Path(one.__code__.co_filename) for one in reached(self.function)))

    @functools.cached_property
    def path(self) -> str:
        return str(kernel_cache() / f"{self.function.__module__}-{self.digest}")

    def get_cache_path(self) -> str:
        return self.path

    def get_source_stamp(self) -> str:
        return self.digest

    def get_disambiguator(self) -> str:
        return str(self._line)


class Kernels(CompileResultCacheImpl):
    """What numba writes of compiled code, at a place of ours."""

    def __init__(self, function: FunctionType) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = Place(function)
        self._filename_base = self.get_filename_base(function.__qualname__, getattr(sys, "abiflags", ""))


class KernelCache(FunctionCache):
    """A function's compiled code on disk.

    Raises
    ------
    RuntimeError : its sources cannot be read.
    """

    _impl_class = Kernels

    def __init__(self, function: FunctionType) -> None:
        self._name, self._py_func = repr(function), function
        self._impl = self._impl_class(function)
        self._lock: io.IOBase | None = None  # held from a load in vain to the save that follows
        self.enable()

    @functools.cached_property
    def _files(self) -> SignatureFiles:
        place = self._impl.locator
        return SignatureFiles(place.get_cache_path(), self._impl.filename_base, place.get_source_stamp())

    @property
    def _cache_file(self) -> SignatureFiles:  # type: ignore[override]
        return self._files

    @property
    def cache_path(self) -> str:
        """The directory of the files."""
        return self._files.directory

    def _index_key(self, sig: Signature, codegen: CPUCodegen) -> tuple[object, ...]:
        """numba's key of a signature, but for what the function was made with: see ``_made_with``."""
        code, made_with = self._py_func.__code__.co_code, _made_with(self._py_func)
        return sig, codegen.magic_tuple(), (_sha256(code), _sha256(repr(made_with).encode()))

    def load_overload(self, sig: Signature, target_context: CPUContext) -> CompileResult | None:
        """What is on disk, at once or when another process has compiled it; None where it is to be compiled here.

        Raises
        ------
        BeingCompiled : another process is at it, and this thread does not wait.
        """
        self._let_go()
        found = super().load_overload(sig, target_context)
        if found is None:
            self._lock = _locked(self._files.lock(self._index_key(sig, target_context.codegen())))
            found = super().load_overload(sig, target_context)
            if found is not None:
                self._let_go()
        return found

    def save_overload(self, sig: Signature, data: CompileResult) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_once(f"compiled code is not kept in {self.cache_path}: {error.strerror}")
        finally:
            self._let_go()

    def letting_go(self, compiling: Callable[..., CompileResult]) -> Callable[..., CompileResult]:
        """The same, but where it fails, so that nothing is saved, the lock is let go of: others need not wait; and the
        machine code has a name of its own. What a kernel calls it waits for."""

        @functools.wraps(compiling)
        def compiled(*types: object) -> CompileResult:
            try:
                with _named_apart(self._py_func), waiting(True):
                    return compiling(*types)
            except BaseException:
                self._let_go()
                raise

        return compiled

    def _let_go(self) -> None:
        if self._lock is not None:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile has it open, too
            self._lock.close()
            self._lock = None


@functools.cache
def _say_once(text: str) -> None:
    log.warning(text)


def _locked(path: str) -> io.IOBase | None:
    """A file, open and locked for this process alone; None where that cannot be, or not within ``PATIENCE``: the lock
    saves work and is needed for nothing else.

    Raises
    ------
    BeingCompiled : another process has it, and this thread does not wait.
    """
    import fcntl

    end = time.monotonic() + PATIENCE
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = open(path, "wb")  # noqa: SIM115, it is held when this is over
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            if not _manner.waits:
                file.close()
                raise BeingCompiled(path)
            time.sleep(0.02)
    except OSError as error:
        log.debug("compiling without a lock: %s", error)
    return None
