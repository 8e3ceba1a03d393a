"""Job files: what they mean, and an error with its line for everything else (fault 87)."""

import shlex

import click
import pytest

from bigclf.cli.jobs import Job, JobError, read_job

GOOD = """\
name: a9a
data:
  source: ${DATA}/a9a.gz
  train: a9a/train
  test: a9a/test
  convert: {n_features: 123, shuffle: false}
method:
  algo: dcd
  C: 1
  bias: none
  working_set: 0.5
limits:
  memory: 256MB
  tol: 1e-3
run:
  dir: a9a/run
  seed: 3
outputs:
  model: a9a/model.bigclf
  evaluation: a9a/test.json
  predictions: a9a/scores
  scores: true
"""


def job(text=GOOD, **environ):
    return Job(text, "x.yaml", {"DATA": "/d", **environ})


def words(job, exists=lambda path: False):
    return [[step.command, *step.words] for step in job.steps(exists)]


def test_sections_become_command_lines():
    convert, fit, evaluate, predict = words(job())
    assert convert == ["convert", "/d/a9a.gz", "a9a/train", "--memory=256MB", "--n-features=123", "--no-shuffle"]
    assert fit == shlex.split(
        "fit a9a/train --output=a9a/model.bigclf --algo=dcd --C=1 --bias=none --param=working_set=0.5 "
        "--memory=256MB --tol=1e-3 --seed=3 --run-dir=a9a/run"
    )
    assert evaluate == shlex.split("evaluate a9a/model.bigclf a9a/test --memory=256MB --output=a9a/test.json")
    assert predict == shlex.split("predict a9a/model.bigclf a9a/test --output=a9a/scores --scores")


def test_a_cluster_and_groups():
    text = (
        "data: {train: t}\nrun: {groups: 4, mixing: mistakes, dir: r}\n"
        'cluster:\n  workers: "${SCHEDULER:-2}"\n  patience:\n    stale: 3\n    idle: 1e1\n'
    )
    tested = job(text.replace("train: t", "train: t, test: v"))
    assert words(tested)[1] == shlex.split("evaluate model.bigclf v --workers=2 --patience=stale=3 --patience=idle=1e1")
    line = "fit t --output=model.bigclf --groups=4 --mixing=mistakes"
    (fit,) = words(job(text))
    assert fit == shlex.split(f"{line} --workers=2 --patience=stale=3 --patience=idle=1e1 --run-dir=r")
    (fit,) = words(job(text, SCHEDULER="tcp://h:1"))
    assert "--workers=tcp://h:1" in fit
    changed = job(text)
    changed.override(("cluster.patience.stale=5", "cluster.workers=3"))
    assert {"--patience=stale=5", "--workers=3"} <= set(words(changed)[0])


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("workers: 2", "worker: 2", 4, "unknown key 'cluster.worker'; cluster has workers, patience"),
        ("stale: 3", "stail: 3", 6, "unknown key 'stail'; patience has stale"),
        ("stale: 3", "stale: soon", 6, "stale must be a number of at least 0, not 'soon'"),
        ("workers: 2", "workers:", 5, "no effect without cluster.workers"),
        ("groups: 4", "workers: 4", 2, "unknown key 'run.workers'"),
        ("\n    stale: 3", " 5", 5, "must be a table"),
        ("data: {train: t}", "steps: [fit: {data: t}]", 3, "both 'steps' and 'cluster'"),
    ],
)
def test_what_is_wrong_with_a_cluster(old, new, line, message):
    text = "data: {train: t}\nrun: {groups: 4}\ncluster:\n  workers: 2\n  patience:\n    stale: 3\n"
    with pytest.raises(JobError, match=f"x.yaml, line {line}: .*{message}"):
        job(text.replace(old, new)).steps(lambda path: False)


def test_shards_that_exist_are_not_made_again():
    assert [step[0] for step in words(job(), lambda path: True)] == ["fit", "evaluate", "predict"]


def test_steps_are_command_lines():
    text = "steps:\n- convert: {sources: [a, b], out: c}\n- fit: {data: c, output: m, params: {C: 2}}\n"
    assert words(job(text)) == [["convert", "a", "b", "c"], ["fit", "c", "--output=m", "--param=C=2"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("${DATA}/x", "/d/x"), ("${NOPE:-y}/x", "y/x"), ("$${DATA}", "${DATA}"), ("a$b", "a$b"), ("${EMPTY:-z}", "z")],
)
def test_environment_names_are_expanded(text, expected):
    assert job(f"data: {{train: '{text}'}}", EMPTY="").table["data"]["train"] == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD.replace("limits:", "limit:"), 12, "unknown key 'limit'"),
        (GOOD.replace("  tol:", "  tolerance:"), 14, "unknown key 'limits.tolerance'; limits has memory, tol"),
        (GOOD.replace("n_features: 123", "n_feature: 123"), 6, "unknown key 'n_feature' of convert"),
        (GOOD.replace("${DATA}", "${MISSING}"), 3, "no MISSING"),
        (GOOD.replace("C: 1", "algo: pa"), 9, "'algo' appears twice"),
        (GOOD.replace("name: a9a", "name: &a [1]\nmore: *a"), 2, "aliases"),
        (GOOD.replace("C: 1", "C: !!python/object/apply:os.system [echo]"), 9, "tag"),
        (GOOD.replace("C: 1", "C: !!binary aGk="), 9, "tag"),
        (GOOD.replace("C: 1", "C: [1"), None, "not readable as YAML"),
        ("data: [1, 2]", 1, "must be a table"),
        ("data: {test: x}", 1, "nothing to do"),
        ("steps: []", 1, "must be a list"),
        ("steps:\n- fit: {}\n- rm: {data: x}", 3, "unknown command 'rm'"),
        ("steps:\n- fit\n", 2, "one command"),
        ("steps:\n- fit: {data: a, output: m}\nmethod: {algo: dcd}", 3, "both 'steps' and 'method'"),
        ("data: {train: x, source: y, train: z}", 1, "twice"),
        ("data:\n  test_source: y\n  train: x", 2, "needs data.test"),
        ("data: {train: x}\noutputs:\n  predictions: p", 3, "needs data.test"),
        ("? [a]\n: b", 1, "plain text"),
        ("", None, "a job is a table"),
        ("- 1", None, "a job is a table"),
        ("a: " + "[" * 60 + "]" * 60, 1, "deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, line, message):
    with pytest.raises(JobError, match=message.replace("[", r"\[")) as caught:
        job(text).steps(lambda path: False)
    place = f"x.yaml, line {line}: " if line else "x.yaml"
    assert str(caught.value).startswith(place)
    assert caught.value.exit_code == 2


def test_a_bomb_does_not_go_off():
    lines = ["a: &a [x, x]"] + [f"{b}: &{b} [*{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(JobError, match="aliases"):
        job("\n".join(lines))
    with pytest.raises(JobError):
        job("[" * 100_000)


def test_set_changes_keys_and_makes_sections():
    changed = job()
    changed.override(("model.C=10", "limits.epochs=5", "outputs.scores=false", "run.seed="))
    fit = words(changed)[1]
    assert "--C=10" in fit and "--epochs=5" in fit and "--seed=3" not in fit
    assert "--scores" not in words(changed)[3]
    bare = job("data: {train: x}")
    bare.override(("method.algo=pa1",))
    assert "--algo=pa1" in words(bare)[0]
    steps = job("steps:\n- fit: {data: c, output: m}\n")
    steps.override(("steps.0.fit.C=7",))
    assert words(steps) == [["fit", "c", "--output=m", "--C=7"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("C", "path.to.key"), ("limit.tol=1", "unknown key 'limit'"), ("limits.tool=1", "limits.tool"),
     ("name.x=1", "no table"), ("steps.4.fit=1", "steps")],
)  # fmt: skip
def test_set_refuses(text, message):
    with pytest.raises(JobError, match=message):
        job().override((text,))


def test_what_was_resolved_reads_the_same():
    first = job()
    again = Job(first.resolved(), "y.yaml", {})
    assert words(again) == words(first)


def test_files_that_are_no_jobs(tmp_path):
    with pytest.raises(JobError, match="no such job file"):
        read_job(str(tmp_path / "x"))
    (tmp_path / "big").write_text("#" * 2_000_000)
    with pytest.raises(JobError, match="larger"):
        read_job(str(tmp_path / "big"))
    (tmp_path / "latin").write_bytes(b"name: \xff")
    with pytest.raises(JobError, match="UTF-8"):
        read_job(str(tmp_path / "latin"))


def test_wrong_values_are_usage_errors_with_their_line(tmp_path):
    from bigclf.cli import main
    from bigclf.cli.run import make_context

    for key, value, line in (("C", "abc", 9), ("bias", "sometimes", 10), ("tol", "-1", 14), ("memory", "lots", 13)):
        old = {"C": "C: 1", "bias": "bias: none", "tol": "tol: 1e-3", "memory": "memory: 256MB"}[key]
        broken = job(GOOD.replace(old, f"{key}: {value}"))
        steps = broken.steps(lambda path: True)
        with click.Context(main) as ctx, pytest.raises(JobError, match=f"x.yaml, line {line}: fit: .*--{key}"):
            make_context(click.Context(main, parent=ctx), broken, steps[0], {})


def test_an_unknown_parameter_of_the_method_is_named_with_its_line():
    text = "data: {train: out}\nmethod:\n  algo: dcd\n  Cc: 1\n"
    with pytest.raises(JobError, match=r"line 4: unknown key 'method.Cc'; dcd has C"):
        Job(text).steps(lambda path: True)


def test_a_name_in_braces_without_quotes_is_explained():
    with pytest.raises(JobError, match="in quotes"):
        Job("data: {train: ${HOME}/x}\n")
