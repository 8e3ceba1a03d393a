"""Texts on their way out, to terminals, logs, JSON and tracebacks: no secrets of URLs, and nothing a terminal obeys.

What users give as an address may hold a password, and names of columns, files and classes come from data that others
made. Both reach messages in many ways, through other libraries too, so they are taken care of where texts leave:
``masked`` in errors, logs and what is written down, ``Guarded`` around stdout and stderr of the command line.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterable
from typing import Any, TextIO
from urllib.parse import unquote

# Secrets of URLs

SCHEME = r"\b([A-Za-z][A-Za-z0-9+.-]*://)"
USER = re.compile(SCHEME + r"([^/\s'\"@:]*:(?!\d+/)[^\s'\"]+|[^/\s'\"]+)@")  # to the last @: passwords hold @ and /
QUERY = re.compile(SCHEME[:-1] + r"[^\s'\"?]*)\?[^\s'\"]*=[^\s'\"]*[^\s'\":;,.)]")
PAIR = re.compile(r"[\w.-]+=[^\s'\"&#]+[^\s'\"&#:;,.)]")
LEAST = 6  # letters of a password that is masked by itself; a shorter one is part of other words
TOKEN = 16  # ... and of a name without a password, which may be a token
_users: set[str] = set()  # what stood before the "@" of a URL: libraries repeat it without the URL
_words: set[str] = set()  # what is masked wherever it stands: passwords, signatures


def masked(text: str) -> str:
    """``text`` without what URLs in it may hold of secrets: names and passwords before ``@``, queries (signatures);
    and without those that any text had before."""
    if "://" in text:
        _learn(text)
        text = QUERY.sub(r"\1?***", USER.sub(r"\1***@", text))
    for user in _users:
        text = text.replace(f"{user}@", "***@")
    for word in sorted(_words, key=len, reverse=True) if _words else ():
        text = text.replace(word, "***")
    return text


def remember(texts: Iterable[Any]) -> None:
    """Mask from now on what URLs among ``texts`` hold of secrets, wherever it comes up."""
    for text in texts:
        if isinstance(text, str | os.PathLike):
            masked(str(text))


def _learn(text: str) -> None:
    for match in USER.finditer(text):
        if match[2] != "***":
            _users.add(match[2])
            user, colon, password = match[2].partition(":")
            one, least = (password, LEAST) if colon else (user, TOKEN)
            _words.update(word for word in (one, unquote(one)) if len(word) >= least)
    for match in QUERY.finditer(text):
        query = match[0].partition("?")[2]
        _words.update(pair for pair in PAIR.findall(query) if not pair.endswith("***"))


def mask_chain(error: BaseException | None) -> None:
    """Mask the messages of an error and of all that it was raised from or while: a traceback prints them, too."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.args = tuple(safe(arg) if isinstance(arg, str) else arg for arg in one.args)
            todo += [one.__cause__, one.__context__]


# What terminals obey

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, C1
DIRECTION = "\u061c\u200e-\u200f\u2028-\u202e\u2066-\u206f"
INVISIBLE = DIRECTION + "\xad\u180e\u200b-\u200d\u2060-\u2065\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
OBEYED = re.compile(f"[{CONTROL}{INVISIBLE}]")
COLOURS = r"\x1b\[[0-9;]*m|\x1b\]8;[^\x00-\x1f\x7f-\x9f]*\x1b\\"  # and links, of rich
DRAWING = r"\x1b\[(?:\?25[lh]|\d*[AKGH])|\r"  # of a live line
ON_STDOUT = re.compile(f"({COLOURS})|[{CONTROL}{INVISIBLE}]")
ON_STDERR = re.compile(f"({COLOURS}|{DRAWING})|[{CONTROL}{INVISIBLE}]")


def written_out(text: str) -> str:
    """``text`` with what a terminal obeys (escapes, bells, marks of direction) as ``\\x1b``; lines and tabs stay."""
    return OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def in_json(text: str) -> str:
    """JSON whose strings hold such characters as ``\\u001b``: it says the same."""
    return OBEYED.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[k : k + 4]}" for k in range(0, len(units), 4))


def safe(text: str) -> str:
    """``text`` masked and written out."""
    return written_out(masked(text))


def _as_drawn(own: re.Pattern[str], text: str) -> str:
    """The same for a terminal, with the colours and the live line that the program itself draws."""
    return own.sub(lambda match: match[1] or ascii(match[0])[1:-1], masked(text))


class Guarded:
    """A text stream through which nothing passes but what ``safe`` lets; on a terminal colours do, too. It has no
    ``buffer``: bytes would go past it."""

    def __init__(self, stream: TextIO, own: re.Pattern[str]) -> None:
        self.stream = stream
        forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"  # as rich has it
        self._shown = functools.partial(_as_drawn, own) if forced or stream.isatty() else safe

    def write(self, text: str) -> int:
        shown, encoding = self._shown(text), getattr(self.stream, "encoding", None) or "utf-8"
        try:
            self.stream.write(shown)
        except UnicodeEncodeError:  # a stream of ASCII
            self.stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "stream"):
            raise AttributeError(name)
        return getattr(self.stream, name)


# Logs

LIBRARIES = ("distributed", "dask", "fsspec", "s3fs", "gcsfs", "adlfs", "aiohttp", "botocore", "aiobotocore", "urllib3",
             "asyncio", "tornado", "pyarrow", "paramiko")  # fmt: skip


def _mask(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if safe(text) != text:
        record.msg, record.args = safe(text), None
    if record.exc_info and record.exc_info[1] is not None:
        mask_chain(record.exc_info[1])
    return True


def guard_logs(*names: str) -> None:
    """Let the loggers of these names, and those below them that there are, say nothing but what is ``safe``."""
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in names]
    for name in {*names, *known}:
        logging.getLogger(name).addFilter(_mask)


guard_logs("bigclf")
