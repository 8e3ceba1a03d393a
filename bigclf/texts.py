"""Texts on their way out, to terminals, logs, JSON and tracebacks: no secrets of URLs, and nothing a terminal obeys.

What users give as an address may hold a password, and names of columns, files and classes come from data that others
made. Both reach messages in many ways, through other libraries too, so they are taken care of where texts leave:
``masked`` in errors, logs and what is written down, ``Guarded`` around stdout and stderr of the command line, ``card``
in notebooks.
"""

from __future__ import annotations

import functools
import html
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeVar
from urllib.parse import quote, unquote

# Secrets of URLs

T = TypeVar("T")
SCHEME = r"\b([A-Za-z][A-Za-z0-9+.-]*://)"
ADDRESS = re.compile(SCHEME + r"([^\s'\"]*)")  # as it stands in a text; one that somebody gave goes on to its end
BLANKS = re.compile(
    SCHEME + r"[^/\s'\"@:\[]+:(?!\d*[\s/'\"),;:]|\d+\W)(?:(?!://)[^\n@]){1,100}@"
)  # no port: a password
PORT = re.compile(r"\d+[/?#]")  # ... or the beginning of a password
HOST = re.compile(
    r"(?:localhost|\[[0-9A-Fa-f:.]+\]|\d+(?:\.\d+){3}|[\w.-]+(?=:\d)|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?=/))"
    r"(?::\d+)?(?=[/?#\s'\"]|$)"
)
PORTLESS = ("s3://", "s3a://", "gs://", "gcs://", "abfs://", "abfss://", "az://")  # buckets
QUERY = re.compile(SCHEME[:-1] + r"[^\s'\"?]*)\?[^\s'\"]*=[^\s'\"]*[^\s'\":;,.)]")
PAIR = re.compile(r"[\w.-]+=[^\s'\"&#]+[^\s'\"&#:;,.)]")
LEAST = 6  # letters of a password that is masked by itself; a shorter one is part of other words
MOST = 8  # beginnings of passwords that hold @
TOKEN = 16  # ... and of a name without a password, which may be a token
FIELD = re.compile(r"[a-z_]+")  # what bigclf's own fields are called: "accuracy"
_users: set[str] = set()  # what stood before the "@" of a URL: libraries repeat it without the URL
_words: set[str] = set()  # what is masked wherever it stands as a word of its own: passwords, signatures


def masked(text: str, fields: bool = False) -> str:
    """``text`` without what URLs in it may hold of secrets: names and passwords before ``@``, queries (signatures);
    and without those that any text had before.

    A password that a library repeats by itself is masked as a whole word (``accuracy``, not ``balanced_accuracy``),
    from ``LEAST`` letters. In results (``fields``) words of small letters alone stay, as names of fields are such.
    """
    if "://" in text:
        _learn(text)
        text = QUERY.sub(r"\1?***", BLANKS.sub(r"\1***@", ADDRESS.sub(_without_user, text)))
    for user in sorted(_users, key=len, reverse=True):
        text = text.replace(f"{user}@", "***@")
    for word in sorted(_words, key=len, reverse=True):
        if word in text and not (fields and FIELD.fullmatch(word)):
            text = _as_word(word).sub("***", text)
    return text


def masked_in(value: object) -> object:
    """What JSON holds with its texts masked; of keys only URLs, as a password may be the name of a field."""
    if isinstance(value, dict):
        return {masked_key(key): masked_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_in(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def masked_key(key: T) -> T | str:
    """A key of JSON: masked where it is a URL."""
    return masked(key) if isinstance(key, str) and "://" in key else key


def remember(addresses: Iterable[object]) -> None:
    """Mask from now on the secrets of addresses that somebody gave, wherever they come up: each is a whole string, and
    its password may hold blanks, quotes, ``/`` and ``@``. A word of a command may begin before its address."""
    for address in addresses:
        text = str(address) if isinstance(address, str | os.PathLike) else ""
        for match in re.finditer(SCHEME, text):
            rest = text[match.end() :]
            for user in _users_of(match[1], rest):
                _keep(user)
            _words.update(pair for pair in re.split("[&#]", rest.partition("?")[2]) if re.match(r"[\w.-]+=..", pair))


def _users_of(scheme: str, rest: str) -> Iterator[str]:
    """What may be name and password in ``rest`` of an address: a password may hold ``@`` and a path as well, so what is
    before each ``@`` is one, but none in a path, or behind what can be a port, with no host following."""
    found = [match.start() for match in re.finditer("@", rest)]
    for at in [*found[:MOST], *found[MOST:][-1:]]:
        name, colon, password = rest[:at].partition(":")
        if "/" in name or name.startswith("["):
            return
        port = colon and scheme.lower() not in PORTLESS and PORT.match(password)
        if not port or HOST.match(rest, at + 1):
            yield rest[:at]


def _without_user(match: re.Match[str]) -> str:
    users = list(_users_of(match[1], match[2]))
    return f"{match[1]}***{match[2][len(users[-1]) :]}" if users else match[0]


def _keep(user: str) -> None:
    """Remember a name and password as they stand, as libraries decode or encode them, and as ``repr`` writes them."""
    if user.startswith("***"):
        return
    name, colon, password = user.partition(":")
    one, least = (password, LEAST) if colon else (name, TOKEN)
    _users.update({user, repr(user)[1:-1]})
    _words.update(word for word in (one, unquote(one), quote(one, safe=""), repr(one)[1:-1]) if len(word) >= least)


@functools.lru_cache
def _as_word(word: str) -> re.Pattern[str]:
    begin, end = (r"(?<!\w)" if word[0].isalnum() else ""), (r"(?!\w)" if word[-1].isalnum() else "")
    return re.compile(begin + re.escape(word) + end)


def _learn(text: str) -> None:
    for match in ADDRESS.finditer(text):
        for user in _users_of(match[1], match[2]):
            _keep(user)
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


# What terminals obey. Joiners and soft hyphens are left alone: words of Persian and pictures of families have them

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, C1
DIRECTION = "\u061c\u200e-\u200f\u2028-\u202e\u2066-\u206f"
INVISIBLE = DIRECTION + "\u180e\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
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


def safe(text: str, fields: bool = False) -> str:
    """``text`` masked and written out."""
    return written_out(masked(text, fields))


def _as_drawn(own: re.Pattern[str], text: str, fields: bool) -> str:
    """The same for a terminal, with the colours and the live line that the program itself draws."""
    return own.sub(lambda match: match[1] or ascii(match[0])[1:-1], masked(text, fields))


class Guarded:
    """A text stream through which nothing passes but what ``safe`` lets; on a terminal colours do, too. It has no
    ``buffer``: bytes would go past it."""

    def __init__(self, stream: TextIO, own: re.Pattern[str]) -> None:
        self.stream = stream
        forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"  # as rich has it
        shown = functools.partial(_as_drawn, own) if forced or stream.isatty() else safe
        self._shown = functools.partial(shown, fields=own is ON_STDOUT)  # results; errors are on stderr

    def write(self, text: str) -> int:
        self.put(self._shown(text))
        return len(text)

    def put(self, shown: str) -> None:
        """Write what is safe already."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        try:
            self.stream.write(shown)
        except UnicodeEncodeError:  # a stream of ASCII
            self.stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))

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


# Notebooks


WIDTH, HEIGHT, MARGIN = 240, 60, 6  # of a curve, in pixels


def card(title: str, facts: Mapping[str, object], *parts: str) -> str:
    """HTML of what a notebook shows of an object: a title, names with values (all escaped), then ``parts`` of HTML as
    ``grid`` and ``curve`` make them. Values that are None or empty are left out."""
    rows = [f'<tr><th style="text-align:left">{_safe(name)}</th><td style="text-align:left">{_safe(value)}</td></tr>'
            for name, value in facts.items() if value not in (None, "")]  # fmt: skip
    return f"<div><strong>{_safe(title)}</strong><table>{''.join(rows)}</table>{''.join(parts)}</div>"


def grid(names: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """HTML of a table: names of the columns, and rows of cells."""
    head = "".join(f"<th>{_safe(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def curve(name: str, values: Sequence[float], along: str = "by epoch") -> str:
    """SVG of positive numbers at equal steps, on a logarithmic scale; nothing for fewer than two of them."""
    points = [(k, math.log10(value)) for k, value in enumerate(values) if 0 < value < math.inf]
    if len(points) < 2:
        return ""
    heights = [height for _, height in points]
    low, span = min(heights), (max(heights) - min(heights)) or 1.0
    steps = (WIDTH - 2 * MARGIN) / (len(values) - 1)
    scale = (HEIGHT - 2 * MARGIN) / span
    line = " ".join(f"{MARGIN + steps * k:.1f},{HEIGHT - MARGIN - scale * (y - low):.1f}" for k, y in points)
    said = f"{_safe(name)} {_safe(along)}: {values[points[0][0]]:.3g} to {values[points[-1][0]]:.3g}"
    return (
        f'<figure style="margin:0"><svg role="img" aria-label="{said}" width="{WIDTH}" height="{HEIGHT}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _safe(value: object) -> str:
    return html.escape(masked(str(value)))
