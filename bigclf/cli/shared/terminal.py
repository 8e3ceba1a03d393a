"""What all commands share: how errors, warnings and facts look, and how a command line is written down again."""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import math
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from bigclf.errors import CONVERT_FIRST, BigclfError, ClusterError, Interrupted, RunError, mask_chain, masked
from bigclf.progress import console, console_in_use, longest_pause
from bigclf.texts import ON_STDERR, ON_STDOUT, Guarded, in_json, masked_key
from bigclf.texts import remember as remember
from bigclf.units import near, nearest, parse_bytes, plural, with_point

if TYPE_CHECKING:
    from click.parser import _OptionParser
    from rich.console import Console

Scalar: TypeAlias = str | float | bool | None  # of YAML; every int is a float
F = TypeVar("F", bound=Callable[..., object])

USAGE, INTERRUPTED, LIMITS, BAD_DATA = 2, 6, 4, 3
RULE = "──"  # before the name of a step of a job
COMMAND = "  bigclf "  # what is to be copied


# Errors, warnings, signals


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let nothing reach stdout or stderr, whoever writes it, but what ``texts.Guarded`` lets pass."""
    if any(isinstance(stream, Guarded) or stream is None for stream in (sys.stdout, sys.stderr)):
        yield
        return
    out: Any = Guarded(sys.stdout, ON_STDOUT)
    err: Any = Guarded(sys.stderr, ON_STDERR)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


@contextlib.contextmanager
def errors_as_lines(ctx: click.Context | None) -> Iterator[None]:
    """Turn whatever is raised inside into one ``error:`` line and the exit code it stands for."""
    try:
        yield
    except (click.exceptions.Exit, BrokenPipeError):
        raise
    except (KeyboardInterrupt, click.Abort, Interrupted) as stop:
        _say_interrupted(stop)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except ClusterError as error:
        if debugging():
            mask_chain(error)
            raise
        _say_lost(error)
        raise click.exceptions.Exit(error.exit_code) from None
    except Exception as error:
        if debugging():
            mask_chain(error)
            raise
        text, code = _describe(error)
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(text, err=True)
        else:
            say("error:", text, "red")
        raise click.exceptions.Exit(code) from None
    finally:
        _resume_lines.clear()
        _rewriting.clear()


def _describe(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.ClickException):
        return _usage_text(error), error.exit_code
    if isinstance(error, BigclfError):
        return _as_flags(_other_file(error)), error.exit_code
    if isinstance(error, MemoryError):
        return "out of memory: give a smaller --memory or close other programs", 1
    if _wants_threads(error):
        return (
            "the system starts no more threads or processes for this command: raise the limit (ulimit -u; --pids-limit "
            "of docker run, TasksMax of a systemd unit), or give fewer --threads and --workers",
            1,
        )
    if isinstance(error, OSError):
        from bigclf import files

        if files.refuses_to_write(error):
            return files.cannot_write(error.filename, error), 1
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", 1
    return (
        f"{type(error).__name__}: {error} (unexpected: set BIGCLF_DEBUG=1 to see where, and please report it)",
        1,
    )


def _wants_threads(error: BaseException | None) -> bool:
    """Whether all began with a thread or a process that the system did not start."""
    while error is not None:
        if isinstance(error, BlockingIOError) or "can't start new thread" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _as_flags(text: str) -> str:
    """Advice for Python's callers in the words of the command line: ``columns={"label": ...}`` is ``--columns
    label=...``."""
    known = _options()
    for option, said in (("--columns", "columns={"), ("--label", 'y="COLUMN"')):
        if known is not None and option not in known:  # the command takes no such advice
            text = "; ".join(part for part in text.split("; ") if said not in part)
    text = re.sub(r'\{("\w+": \.\.\.(?:, )?)+\}', lambda found: re.sub(r'[{}" ]', "", found[0]).replace(":", "="), text)
    named = r'\bcolumns=\{("\w+": "[^"{}]*"(?:, )?)+\}'
    text = re.sub(named, lambda found: "--columns " + re.sub(r'[{}" ]', "", found[0][8:]).replace(":", "="), text)
    text = re.sub(r"\bcolumns=(?: |(?=\w+=\.\.\.))", "--columns ", text)
    text = re.sub(r"\by='([^']*)'", r"--label \1", text)
    text = re.sub(r"\bbigclf\.suggest (?=shows|lists)", "`bigclf inspect FILE --suggest` ", text)
    return text.replace("overwrite=True", "--overwrite").replace('y="COLUMN"', "--label COLUMN")


def _options() -> set[str] | None:
    """The options of the command that runs; None where that is not known."""
    ctx = click.get_current_context(silent=True)
    command = None if ctx is None else ctx.command
    if ctx is not None and isinstance(command, click.Group):
        command = command.get_command(ctx, ctx.invoked_subcommand or "")
    return None if command is None else {flag for param in command.params for flag in param.opts}


def _other_file(error: BigclfError) -> str:
    """The text of an error; of a file that is not Parquet with the way out on the command line in place of Python's."""
    text = str(error)
    if "not a Parquet file" not in text:
        return text
    return text.replace(CONVERT_FIRST, "") + _instead(str(getattr(error, "file", None)))


def _instead(path: str) -> str:
    """What may have been meant by a file that is not Parquet."""
    from bigclf import files
    from bigclf.conversion.tables.reading import named_as_table

    with contextlib.suppress(Exception), files.open_binary(path) as file:
        if file.read(9)[8:] == b"{":
            return "; it looks like a model, but data is expected here"
        if named_as_table(str(path)):
            if "--spec" in (_options() or ()):
                return "; for a raw table, name the columns: --label COL or --spec FILE (bigclf help data)"
            return (f"; for a raw table, run `bigclf convert {path} OUT --label COL` first, or with --spec FILE (bigclf"
                    " help data)")  # fmt: skip
    named = "name its format with --format, or " if "--format" in (_options() or ()) else ""
    return f"; for text, {named}run `bigclf convert` first"


NUMBERS = {  # click's words for what is no number
    "a valid integer range": "a whole number", "a valid integer": "a whole number", "a valid float range": "a number",
    "a valid float": "a number",
}  # fmt: skip


def _usage_text(error: click.ClickException) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    # what click would suggest besides may share half the letters
    text = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    ctx, text = getattr(error, "ctx", None), text.rstrip(" .\n")
    for name, plain in NUMBERS.items():
        text = text.replace(name, plain)
    if found := re.search(r"'([^']*)' is not a number$", text):
        text += with_point(found[1])
    if ctx is None:
        return text
    if "unexpected extra argument" in text and any("--data" in param.opts for param in ctx.command.params):
        return f"{text}; of --data write a glob in quotes, or --data before each file"
    if meant := _meant(error, ctx):
        return f"{text}; did you mean {meant}? (see {ctx.command_path} --help)"
    return text if "(see " in text else f"{text} (see {_where_to_look(error, text, ctx)})"


def _meant(error: click.ClickException, ctx: click.Context) -> str | None:
    """``--C`` for ``-C``, which the command does not have; LIBLINEAR's ``-c`` is the same. Of words the nearest."""
    if not isinstance(error, click.NoSuchOption):
        return None
    name = error.option_name.lstrip("-")
    written = {option.lstrip("-"): option for param in ctx.command.params if isinstance(param, click.Option)
               for option in (*param.opts, *param.secondary_opts)}  # fmt: skip
    if not error.option_name.startswith("--"):
        return next((option for bare, option in written.items() if bare.casefold() == name.casefold()), None)
    return written.get(nearest(name, written))


def _where_to_look(error: click.ClickException, text: str, ctx: click.Context) -> str:
    """The command that lists the parameters of the method an error speaks of, else the options of the command."""
    options = {param.name for param in ctx.command.params}
    if isinstance(error, click.NoSuchOption) and "params" in options:
        from bigclf.methods import METHODS

        name = error.option_name.lstrip("-")
        if any(param.name == name for method in METHODS.values() for param in method.params):
            return f"bigclf algorithms: {name} is a parameter of methods, --param {name}=VALUE"
    method = re.search(r"algo='(\w+)'", text)
    if not method or "algo" not in options:
        return f"{ctx.command_path} --help"
    return f"bigclf algorithms {method[1]}" if method[1] != "auto" else "bigclf help algorithms"


class _Way:
    """A command line that goes on, and whether something is done already that it goes on from."""

    def __init__(self, line: str) -> None:
        self.line, self.begun = line, False


_resume_lines: list[_Way] = []


def _say_interrupted(stop: BaseException) -> None:
    reason = str(stop).partition(";")[0]  # what follows is advice for Python's callers
    reason = f" ({reason})" if reason else ""
    how = f"; continue with:  {_resume_lines[0].line}" if _resume_lines else "; nothing partial was left behind"
    say("interrupted" + reason, how, "yellow", joint="")


def _say_lost(error: ClusterError) -> None:
    """The cluster is lost, or there was none; what a run had come to by then is where the last words go on from."""
    reason, found, _ = str(error).partition("; resume it with run_dir=")  # advice for Python's callers
    begun = found or any(way.begun for way in _resume_lines[:1])
    how = f"; continue with:  {_resume_lines[0].line}" if begun and _resume_lines else ""
    say("error:", reason + how, "red")


@contextlib.contextmanager
def resumable(line: str) -> Iterator[_Way]:
    """While inside, an interruption or a lost cluster prints ``line`` as the command that goes on from there."""
    _resume_lines.append(_Way(line))
    yield _resume_lines[-1]  # an exception leaves the line behind for errors_as_lines to print
    _resume_lines.pop()


_rewriting: list[Callable[[str], str]] = []


@contextlib.contextmanager
def rewriting(text: Callable[[str], str]) -> Iterator[None]:
    """While inside, what is said is said as ``text`` has it; an exception leaves it for errors_as_lines, too."""
    _rewriting.insert(0, text)
    yield
    _rewriting.pop(0)


def check_environment() -> None:
    """UsageError for a variable of the environment that says what cannot be, before any work is begun."""
    try:
        longest_pause()
    except RunError as error:
        raise click.UsageError(str(error)) from None


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Python's warnings and the package's log as one ``warning:`` line each, without the place in our sources."""

    def show(message: Warning | str, *_args: object, **_kwargs: object) -> None:
        say("warning:", str(message), "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        handler = _Lines(logging.WARNING)
        logging.getLogger("bigclf").addHandler(handler)
        try:
            with waits_as_notes():
                yield
        finally:
            logging.getLogger("bigclf").removeHandler(handler)


@contextlib.contextmanager
def waits_as_notes() -> Iterator[None]:
    """What somebody before a terminal waits for without seeing it as ``note:`` lines; a log is not told."""
    if not sys.stderr.isatty():
        yield
        return
    waiting, handler = logging.getLogger("bigclf.waiting"), _Notes(logging.INFO)
    level = waiting.level
    waiting.addHandler(handler)
    waiting.setLevel(logging.INFO)
    try:
        yield
    finally:
        waiting.removeHandler(handler)
        waiting.setLevel(level)


class _Lines(logging.Handler):
    """What the package logs, as ``warning:`` lines."""

    def emit(self, record: logging.LogRecord) -> None:
        say("warning:", _as_flags(record.getMessage()), "yellow")


class _Notes(logging.Handler):
    """What is waited for, as ``note:`` lines."""

    def emit(self, record: logging.LogRecord) -> None:
        say("note:", record.getMessage(), "yellow")


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """What Python's callers get as TypeError or ValueError about their arguments is a usage error here."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if debugging():
            raise
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as Ctrl-C, so that everything half-written is removed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(word: str, text: str, colour: str, joint: str = " ") -> None:
    """A line on stderr, its first word in colour; above the live line, where one is drawn. On a terminal a word without
    room goes on below, unless the line ends with a command, which somebody copies."""
    text = printable(masked(" ".join(text.split("\n")))) if text else ""
    text = _rewriting[0](text) if _rewriting else text
    used = console_in_use()
    if sys.stderr.isatty() and COMMAND not in text:
        width = (used or console()).width
        text = "\n  ".join(folded(text, width - len(word + joint)))
    if used is None:
        click.echo(click.style(word, fg=colour, bold=True) + joint + text, err=True)
        return
    from rich.text import Text

    used.print(Text.assemble((word, f"bold {colour}"), joint, text), soft_wrap=True)


# Results


def emit_json(result: object) -> None:
    """One JSON value on stdout; NaN and infinities as null, numpy as plain numbers and lists."""
    text = in_json(json.dumps(plain(result), indent=2, ensure_ascii=False))
    if isinstance(sys.stdout, Guarded):  # which would mask names of fields
        sys.stdout.put(f"{text}\n")
        sys.stdout.flush()
    else:
        click.echo(text)


def emit_bytes(pieces: Iterable[bytes]) -> None:
    """UTF-8 on stdout: data are left as they are, unless a terminal reads them."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    stream = sys.stdout.stream if isinstance(sys.stdout, Guarded) else sys.stdout
    for piece in pieces:
        if stream.isatty():
            click.echo(decoder.decode(piece), nl=False)
        else:
            stream.buffer.write(piece)
    stream.flush()


def plain(value: object) -> object:
    """``value`` in the types JSON knows, its texts without secrets of URLs."""
    if isinstance(value, dict):
        return {masked_key(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) or value is None:
        return value
    return plain(value.tolist()) if hasattr(value, "tolist") else masked(str(value))


def facts(pairs: Iterable[tuple[str, object]], indent: str = "") -> None:
    """Aligned ``name   value`` lines on stdout; a pair without a value is left out. On a terminal values that are
    longer than the line go on below themselves."""
    shown = [(name, str(value)) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    before = len(indent) + width + 2
    room = tables().width - before if sys.stdout.isatty() else 0
    for name, value in shown:
        first, *more = folded(value, room)
        click.echo(f"{indent}{click.style(name.ljust(width), dim=True)}  {first}")
        for line in more:
            click.echo(" " * before + line)


def note(text: str, before: str = "  ") -> None:
    """A text behind ``before`` on stdout; on a terminal its words go on below themselves."""
    width = len(click.unstyle(before))
    first, *more = folded(text, tables().width - width if sys.stdout.isatty() else 0)
    click.echo(before + first)
    for line in more:
        click.echo(" " * width + line)


def folded(text: str, room: int, least: int = 20) -> list[str]:
    """The words of ``text``, colours and all, in lines of ``room`` columns; with less room than ``least`` one line."""
    lines = [""]
    for word in text.split(" ") if room >= least else [text]:
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and len(click.unstyle(longer)) > room >= least:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def heading(text: str, note: str = "") -> None:
    click.echo(click.style(text, bold=True) + (click.style(f"  {note}", dim=True) if note else ""))


def printable(value: object) -> str:
    """Text from data, with what a terminal would obey (escapes, bells, marks of direction) written out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def good(text: str) -> str:
    return click.style(text, fg="green", bold=True)


def poor(text: str) -> str:
    return click.style(text, fg="yellow", bold=True)


def tables() -> Console:
    """A ``rich`` console on stdout, as wide as the terminal; where there is none, wide enough to cut nothing short."""
    found = console()
    return found if found.is_terminal else console(width=max(found.width, 160))


# Parameters


LEAST_BARE = 1_000_000  # bytes: a smaller number without a unit lacks one


class Size(click.ParamType):
    """A size in bytes such as ``256MB``; kept as text, refused when it is none."""

    name = "size"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        try:
            size = parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < LEAST_BARE and str(value).strip().isdigit():
            self.fail(f"{value} without a unit is {plural(size, 'byte')}; did you mean {value}MB?", param, ctx)
        return value


class _Speed(Size):
    """Bytes a second such as ``1GB/s`` or ``1GB``; kept as the text of a size."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(value).removesuffix("/s"), param, ctx)


SIZE, SPEED = Size(), _Speed()
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text.")


class OneValue(click.Option):
    """An option with one value: who gives two is told, of which the last would count."""

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        self.multiple = True
        super().add_to_parser(parser, ctx)
        self.multiple = False

    def consume_value(self, ctx: click.Context, opts: Mapping[str, click.Parameter]) -> tuple[object, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        return self.joined(value, ctx) if isinstance(value, list) else value, source

    def joined(self, values: list[str], ctx: click.Context) -> str:
        if len(values) > 1:
            raise click.UsageError(f"{self.opts[-1]} is given twice: {', '.join(values)}; name a directory, or a glob "
                                   "in quotes, of all these files", ctx)  # fmt: skip
        return values[0]


class Listed(OneValue):
    """An option of values between commas: who gives it twice means the values of both."""

    def joined(self, values: list[str], ctx: click.Context) -> str:
        return ",".join(values)


def _rows(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """What a shell made of ``shards/*`` without bigclf's own files there."""
    from bigclf.files import without_ours

    return (*without_ours(given),)


data_argument = click.argument("data", nargs=-1, required=True, metavar="DATA...", callback=_rows)
things_argument = click.argument("things", nargs=-1, required=True, metavar="DATA|MODEL|RUN|SWEEP|PATH", callback=_rows)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace what is already there.")


def check_patience(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """NAME=SECONDS with names that there are, and seconds that are numbers; kept as text."""
    for name, value in pairs_option(given, "--patience").items() if given else ():
        if reason := wrong_patience(name, value):
            raise click.BadParameter(reason, param=param)
    return given


def patience_of(given: tuple[str, ...]) -> dict[str, float] | None:
    """What ``check_patience`` has let through, as a table; None where nothing is said."""
    pairs = pairs_option(given, "--patience")
    return {name: value for name, value in pairs.items() if isinstance(value, int | float)} or None


def with_options(options: Iterable[Callable[[F], F]], command: F) -> F:
    """The command with these options, in their order."""
    for option in reversed([*options]):
        command = option(command)
    return command


def workers_of(text: str | int | None) -> int | str | None:
    """A number of processes or an address."""
    return int(text) if isinstance(text, str) and text.isdecimal() else text or None


def wrong_patience(name: str, value: object) -> str | None:
    """What is wrong with this line of a patience, if anything."""
    from bigclf.cluster.book import Patience

    if name not in Patience._fields:
        return f"unknown key {name!r}; patience has {', '.join(Patience._fields)}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return f"{name} must be a number of at least 0, not {value!r}"
    return None


def pairs_option(text: tuple[str, ...] | str, option: str) -> dict[str, Scalar]:
    """``NAME=VALUE`` texts as a table, values read as YAML scalars (numbers, true, null, text)."""
    import yaml

    pairs = _pairs((text,) if isinstance(text, str) else text, option)
    return {name: number_or(yaml.safe_load(value) if value else "") for name, value in pairs}


def names_option(text: str, option: str) -> dict[str, str]:
    """``ROLE=NAME,...`` as a table; a name is text, whatever it looks like (``*`` and ``1`` too)."""
    from bigclf.data.vectors import ROLES

    found = dict(_pairs(text.split(","), option))
    if unknown := [role for role in found if role not in ROLES]:
        known = f"a role is one of {', '.join(ROLES)}"
        raise click.BadParameter(f"unknown role {unknown[0]!r}; {known}{near(unknown[0], ROLES)}", param_hint=option)
    return found


def _pairs(items: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"write NAME=VALUE, not {item!r}", param_hint=option)
        yield name, value


def number_or(value: Scalar) -> Scalar:
    """``1e-3`` is text for YAML 1.1 (it wants 1.0e-3): read it as the number everyone means."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def command_line(ctx: click.Context, **changed: object) -> str:
    """The command line that ``ctx`` was made from, with parameters set or changed, ready to be pasted. Of one that goes
    on (``resume``) nothing is left that would begin anew."""
    if changed.get("resume"):
        changed["overwrite"] = False
    words = ctx.command_path.split()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        if param.name in changed or given:
            words += _words(param, changed.get(param.name, ctx.params.get(param.name or "")))
    return shlex.join(words)


def _words(param: click.Parameter, value: object) -> list[str]:
    """One parameter as words of a command line."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if isinstance(param, click.Argument):
        return [str(item) for item in values]
    assert isinstance(param, click.Option)
    if param.is_flag:
        names = param.opts if value else param.secondary_opts
        return [names[-1]] if names else []
    return [word for item in values if item is not None for word in (param.opts[-1], str(item))]


def debugging() -> bool:
    """True when ``BIGCLF_DEBUG`` asks for tracebacks instead of error lines."""
    return bool(os.environ.get("BIGCLF_DEBUG"))
