"""The guides: their examples run, what they quote is said somewhere, and ``bigclf help`` shows them."""

import io
import os
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

import bigclf
from bigclf.cli import help as help_
from bigclf.cli import main
from bigclf.cli.help import TOPICS, guide

PACKAGE = Path(bigclf.__file__).parent
DEMO = "bigclf demo --dir out/demo --rows 3000 --memory 96MB --keep-text"
ELSEWHERE = ("bigclf demo", "bigclf bench", "bigclf doctor")  # minutes, or peers: they have tests of their own

pytestmark = pytest.mark.xdist_group("guides")  # they share the demo's rows and the kernels


def blocks(topic):
    """(kind, text) of the code blocks of a guide, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", guide(topic), re.MULTILINE | re.DOTALL)


def commands(text):
    lines = [re.sub(r"\s+#.*", "", line) for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


def run(line):
    command, _, target = line.partition(" > ")
    words = shlex.split(command)
    assert words[0] == "bigclf", line
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code in (0, 4), (line, result.output, result.stderr)
    if target:
        Path(target).write_text(result.stdout)
    return result


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which the demo has run, and its rows are converted."""
    directory = tmp_path_factory.mktemp("guides")
    home = os.getcwd()
    os.chdir(directory)
    run(DEMO)
    yield directory
    os.chdir(home)


def test_the_demo_that_makes_the_rows_is_the_one_in_the_guide():
    assert DEMO in guide("laptop")


@pytest.mark.parametrize("topic", [t if t in ("laptop", "data") else pytest.param(t, marks=pytest.mark.long)
                                   for t in TOPICS])  # fmt: skip
def test_examples_run(topic, place):
    lay_out(converted="\nbigclf convert out/demo/train.svm out/train" not in guide(topic))
    shown = ""
    for kind, text in blocks(topic):
        if kind == "sh":
            results = [run(line) for line in commands(text) if not line.startswith(ELSEWHERE)]
            shown = "".join(result.output for result in results)
        elif kind == "output":
            for line in text.splitlines():
                assert line.strip() in shown, (line, shown)
        elif kind == "python":
            with redirect_stdout(io.StringIO()):
                exec(compile(text, f"{topic}.md", "exec"), {"__name__": "__main__"})


def lay_out(converted):
    """The demo's shards where the guides have them, or nothing there."""
    shutil.rmtree("out/train", ignore_errors=True)
    shutil.rmtree("out/test", ignore_errors=True)
    if converted:
        shutil.copytree("out/demo/train", "out/train")
        shutil.copytree("out/demo/test", "out/test")


@pytest.mark.parametrize("topic", TOPICS)
def test_commands_and_options_exist(topic):
    for kind, text in blocks(topic):
        for line in commands(text) if kind in ("sh", "text") else []:
            words = shlex.split(line.partition(" > ")[0])
            command = main.get_command(click.Context(main), words[1])
            assert command is not None, line
            command.make_context(words[1], words[2:])


def test_tables_name_options_and_methods_that_exist():
    from bigclf.methods import METHODS

    options = set()
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        options |= {option for parameter in command.params for option in parameter.opts}
    for topic in TOPICS:
        ours = [line.split("|")[2] for line in guide(topic).splitlines() if line.startswith("| ")]
        for cell in ours:
            assert set(re.findall(r"--algo (\w+)", cell)) <= {*METHODS, "auto"}, cell
            assert set(re.findall(r"algo=\"(\w+)\"", cell)) <= {*METHODS, "auto"}, cell
            assert set(re.findall(r"(?<![\w-])--\w[\w-]*", cell)) <= options, cell


def test_the_guide_names_the_commands_that_skip_bad_rows_and_no_others():
    section = guide("data").partition("## Bad rows")[2]
    commands = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}
    skipping = {name for name, command in commands.items() if "on_bad_rows" in {param.name for param in command.params}}
    named, _, never = section.partition("take both options.")
    assert skipping and set(re.findall(r"`(\w+)`", named)) & {*commands} == skipping
    refusing, *_ = never.partition("leaves no")
    assert set(re.findall(r"`(\w+)`", refusing)) and not set(re.findall(r"`(\w+)`", refusing)) & skipping


def test_messages_that_are_explained_are_said():
    said = " ".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    said = re.sub(r"[\"']\s*f?[\"']", "", re.sub(r"\s+", " ", said))  # strings that go on in the next line
    data, *_ = guide("troubleshooting").partition("## Convergence")
    found = re.findall(r"^- \*\*(.*?)\*\*", data, re.MULTILINE | re.DOTALL)
    quoted = [part for message in found if message[0].islower() for part in message.split("...")]
    assert len(quoted) >= 20
    for part in quoted:
        assert " ".join(part.split()).strip(" ;:") in said, part


def test_help_lists_and_shows():
    listed = run("bigclf help").output
    assert all(topic in listed for topic in TOPICS)
    for topic in TOPICS:
        assert run(f"bigclf help {topic}").output.startswith("# ")
    assert "--rows" in run("bigclf help demo").output
    wrong = CliRunner().invoke(main, ["help", "certificat"])
    assert wrong.exit_code == 2 and "certificate" in wrong.stderr


def test_on_a_terminal_lines_of_code_are_as_long_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(
        "bigclf.cli.shared.terminal.tables", lambda: Console(width=40, force_terminal=True, no_color=True)
    )
    line = "bigclf fit articles.csv -o tags.bigclf --label tags --algo dcd"
    help_._show(
        f"# A guide\n\nWords that are longer than forty columns are broken here.\n\n```sh\n{line}\n```\n", False
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert line in [one.rstrip() for one in said] and max(len(one.rstrip()) for one in said if line not in one) <= 40
