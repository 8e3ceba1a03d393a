"""Job files: what they mean, and an error with its line for everything else."""

import os
import re
import shlex

import click
import numpy as np
import pytest
from click.testing import CliRunner

import bigclf
from bigclf.cli import main
from bigclf.cli.jobs.steps import Job, JobError, read_job
from bigclf.cli.run import make_context, require_possible
from bigclf.errors import BigclfError, DataError, RunError

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


def test_raw_columns_of_the_test_rows_become_what_those_of_the_training_rows_became():
    text = """
data: {source: a.csv, train: s, test_source: b.csv, test: t, convert: {format: csv, spec: spec.yaml, chunk_nnz: 9}}
outputs: {model: m}
"""
    first, second, *_ = words(job(text))
    assert first == ["convert", "a.csv", "s", "--format=csv", "--spec=spec.yaml", "--chunk-nnz=9"]
    assert second == ["convert", "b.csv", "t", "--chunk-nnz=9", "--features-of=s"]


def test_sections_become_command_lines():
    convert, fit, evaluate, predict = words(job())
    assert convert == ["convert", "/d/a9a.gz", "a9a/train", "--memory=256MB", "--n-features=123", "--no-shuffle"]
    assert fit == shlex.split(
        "fit a9a/train --output=a9a/model.bigclf --algo=dcd --C=1 --bias=none --param=working_set=0.5 "
        "--memory=256MB --tol=1e-3 --seed=3 --run-dir=a9a/run"
    )
    assert evaluate == shlex.split("evaluate a9a/model.bigclf a9a/test --memory=256MB --output=a9a/test.json")
    assert predict == shlex.split("predict a9a/model.bigclf a9a/test --memory=256MB --output=a9a/scores --scores")


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


@pytest.mark.parametrize("change", ["cluster.workers=1", "cluster.workers="])
def test_a_job_with_patience_goes_on_without_workers(change):
    tested = job("data: {train: t, test: v}\ncluster: {workers: 2, patience: {idle: 9}}\nrun: {groups: 4}\n")
    tested.override((change,))
    for line in words(tested):
        assert not [word for word in line if "patience" in word]
    (fit,) = words(job('data: {train: t}\ncluster: {workers: "${N:-2}", patience: {idle: 9}}\n', N="1"))
    assert not [word for word in fit if "patience" in word]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("workers: 2", "worker: 2", 4, "'cluster.worker'; did you mean workers. cluster has workers, patience"),
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
        (GOOD.replace("  tol:", "  tolerance:"), 14, "unknown key 'limits.tolerance'; did you mean tol. limits has"),
        (GOOD.replace("n_features: 123", "n_feature: 123"), 6, "unknown key 'n_feature' of convert"),
        (GOOD.replace("convert: {", "convert: {data: x, "), 6, "key 'data' of convert; did you mean data.source. "),
        (GOOD.replace("convert: {", "columns: 'label=y'\n  convert: {"), 6, "such as {label: y}, not 'label=y'"),
        (GOOD.replace("algo: dcd", "algoo: dcd"), 8, "unknown key 'method.algoo'; did you mean algo. no method has it"),
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
    [("C", "path.to.key"), ("tol=1", "unknown key 'tol'; did you mean limits.tol"),
     ("limit.tol=1", "unknown key 'limit'"), ("limits.tool=1", "limits.tool"),
     ("name.x=1", "not a table"), ("steps.4.fit=1", "steps")],
)  # fmt: skip
def test_set_refuses(text, message):
    with pytest.raises(JobError, match=f"^--set {re.escape(text)}: .*{message}"):
        job().override((text,))


def test_a_value_that_was_set_is_blamed_and_not_a_line_of_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("data: {train: t}\nmethod: {algo: dcd, C: 1}\noutputs: {model: m}\n")
    for text, told in (
        ("method.epoch=3", "unknown key 'method.epoch'; did you mean limits.epochs?"),
        ("method.C=abc", "'abc' is not a valid float"),
        ("method.algo=dcdd", "did you mean dcd?"),
        ("limits={epochs: x}", "'x' is not a valid integer"),
        ("method.C=-1", "C=-1.0 is outside its bounds"),  # the training itself would say so after other steps
    ):
        code = CliRunner().invoke(main, ["run", str(path), "--dry-run", "--set", text])
        assert code.exit_code == 2 and f"error: --set {text}: " in code.stderr and told in code.stderr, code.output
    told = CliRunner().invoke(main, ["run", str(path), "--dry-run", "--set", "method.algo=dcd", "--set", "method.x=1"])
    assert "--set method.x=1: unknown key 'method.x'" in told.stderr
    path.write_text("steps:\n- fit: {data: d, output: m}\n")
    told = CliRunner().invoke(main, ["run", str(path), "--dry-run", "--set", "steps.0.fit.epochs=x"])
    assert "error: --set steps.0.fit.epochs=x: " in told.stderr


def test_what_was_resolved_reads_the_same():
    first = job()
    again = Job(first.resolved(), "y.yaml", {})
    assert words(again) == words(first)


def test_what_a_step_wants_is_told_in_the_words_of_a_job(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    path = tmp_path / "job.yaml"
    path.write_text(f"steps:\n  - fit: {{data: {tmp_path}/t.csv, output: {tmp_path}/m}}\n")
    done = CliRunner().invoke(main, ["run", str(path)])
    told = "did you mean {0}: b or {0}: a? `bigclf inspect FILE --suggest` lists all the columns (see "
    assert done.exit_code == 2 and told.format("label") in done.output
    path.write_text(f"data: {{train: {tmp_path}/t.csv}}\noutputs: {{model: {tmp_path}/m}}\n")
    done = CliRunner().invoke(main, ["run", str(path)])
    assert done.exit_code == 2 and told.format("method.label") in done.output
    path.write_text(f"data: {{train: {tmp_path}/t.csv, label: b}}\n")
    done = CliRunner().invoke(main, ["run", str(path)])
    assert done.exit_code == 2 and "unknown key 'data.label'; did you mean method.label? data has" in done.output
    (tmp_path / "t.csv").write_text("age,town\n" + "1,x\n3,\n3,z\n" * 9)  # a row without a label: an error of the data
    path.write_text(f"steps:\n  - fit: {{data: {tmp_path}/t.csv, output: {tmp_path}/m, label: town}}\n")
    done = CliRunner().invoke(main, ["run", str(path)])
    assert done.exit_code == 3 and "use on_bad_rows: skip max_bad_fraction: 0.3" in done.output


def test_what_the_last_step_would_refuse_is_refused_before_the_first(tmp_path):
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1\n" * 9)
    path, model = tmp_path / "job.yaml", tmp_path / "m"
    steps = f"""
steps:
  - convert: {{sources: {tmp_path}/t.svm, out: {tmp_path}/s}}
  - fit: {{data: {tmp_path}/s, output: {model}, algo: pa1, epochs: 1}}
  - evaluate: {{model: {model}, data: {tmp_path}/s/part-*.parquet, output: {tmp_path}/e.json}}
  - evaluate: {{model: {model}, data: {tmp_path}/t.sv}}
"""
    path.write_text(steps)
    done = CliRunner().invoke(main, ["run", str(path)])
    assert done.exit_code == 3 and "no data file matches" in done.output and "t.sv" in done.output
    assert sorted(os.listdir(tmp_path)) == ["job.yaml", "t.svm"]
    assert CliRunner().invoke(main, ["run", str(path), "--dry-run"]).exit_code == 0
    path.write_text(steps.replace("t.sv}", "t.svm}"))
    (tmp_path / "e.json").touch()
    done = CliRunner().invoke(main, ["run", str(path)])
    assert done.exit_code == 1 and f"{tmp_path}/e.json already exists" in done.output and not model.exists()
    assert CliRunner().invoke(main, ["run", str(path), "--overwrite"]).exit_code == 0


def test_rows_that_a_step_may_make_are_not_looked_for_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for k in (1, 2):
        (tmp_path / f"t{k}.svm").write_text("1 1:1\n-1 2:1\n" * 9)
        (tmp_path / f"hive/y={k}").mkdir(parents=True)
        (tmp_path / f"hive/y={k}/p.csv").write_text("a\n1\n2\n")
        (tmp_path / f"texts/c{k}").mkdir(parents=True)
        (tmp_path / f"texts/c{k}/a.txt").write_text("a word\n")
    (tmp_path / "d.json").write_text('{"rows": [{"y": 1, "a": 2}, {"y": 0, "a": 3}]}')
    bigclf.fit(np.eye(2), [0, 1], algo="pa1", progress=False).save("m")
    made = "  - convert: {sources: t1.svm, out: s-1}\n  - convert: {sources: t2.svm, out: out/s-2}\n"
    made += "  - predict: {model: m, data: t1.svm, output: preds/x.csv}\n"
    good = ("s-*/part-*.parquet", "out/s-?", "out", f"file://{tmp_path}/s-1", "preds", "s-1")  # made, and there:
    good += ("hive", "texts", "d.json#rows")
    for data in good:
        (tmp_path / "job.yaml").write_text(f"steps:\n{made}  - fit: {{data: '{data}', output: m2, label: y}}\n")
        require_possible(steps_of("job.yaml"), resume=False)
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    linked = "  - convert: {sources: t1.svm, out: link/s}\n  - fit: {data: far/s, output: m2, label: y}\n"
    (tmp_path / "job.yaml").write_text(f"steps:\n{linked}")
    require_possible(steps_of("job.yaml"), resume=False)
    for data in ("hive/*.x", "s1", "outs", f"file://{tmp_path}/s", "e.json#rows"):
        (tmp_path / "job.yaml").write_text(f"steps:\n{made}  - fit: {{data: '{data}', output: m2, label: y}}\n")
        with pytest.raises(DataError, match="no data file matches"):
            require_possible(steps_of("job.yaml"), resume=False)
    for there in ("m3", "m3.html"):
        (tmp_path / there).touch()
        (tmp_path / "job.yaml").write_text("steps:\n  - fit: {data: t1.svm, output: m3, report: m3.html}\n")
        with pytest.raises(RunError, match=f"{there} already exists"):
            require_possible(steps_of("job.yaml"), resume=False)
        require_possible(steps_of("job.yaml"), resume=True)
        (tmp_path / there).unlink()


@pytest.mark.parametrize(("steps", "told"), [
    ("- fit: {data: t.svm, output: m}\n- evaluate: {model: n, data: t.svm}", "n: no such file"),
    ("- calibrate: {model: n, data: t.svm, output: n}\n- evaluate: {model: n, data: t.svm}", "n: no such file"),
    ("- fit: {data: t.svm, output: m, init: n}", "n: no such file"),
    ("- fit: {data: t.svm, output: m}\n- evaluate: {model: m, data: t.svm, output: e}\n"
     "- report: {run: m, output: e}", "job.yaml, line 4: report: a step before it writes e, too"),
    ("- fit: {data: t.svm, output: m}\n- fit: {data: t.svm, output: m}", "fit: a step before it writes m, too"),
    ("- convert: {sources: t.svm, out: s}\n- convert: {sources: t.svm, out: s}", "convert: a step before it writes s"),
    ("- fit: {data: t.svm, output: m}\n- predict: {model: m, data: t.svm, output: p}\n"
     "- predict: {model: m, data: u.svm, output: p}\n- calibrate: {model: m, data: t.svm, output: n}\n"
     "- evaluate: {model: n, data: t.svm}\n- convert: {sources: t.svm, out: s}\n"
     "- convert: {sources: t.svm, out: s, append: true}", None),
])  # fmt: skip
def test_models_that_nobody_makes_and_results_made_twice_end_a_job_before_its_first_step(
    tmp_path, monkeypatch, steps, told
):
    monkeypatch.chdir(tmp_path)
    for name in ("t.svm", "u.svm"):
        (tmp_path / name).write_text("1 1:1\n-1 2:1\n" * 9)
    (tmp_path / "job.yaml").write_text(f"steps:\n{steps}\n")
    if told is None:
        return require_possible(steps_of("job.yaml"), resume=False)
    with pytest.raises(BigclfError) as caught:
        require_possible(steps_of("job.yaml"), resume=False)
    assert told in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["job.yaml", "t.svm", "u.svm"]


def steps_of(path):
    read, ctx = read_job(path), click.Context(main)
    return [(step, make_context(ctx, read, step, {"resume": False})) for step in read.steps(os.path.exists)]


def test_files_that_are_no_jobs(tmp_path):
    (tmp_path / "jobs.yaml").touch()
    with pytest.raises(JobError, match="no such job file; did you mean '.*jobs.yaml'"):
        read_job(str(tmp_path / "job.yaml"))
    (tmp_path / "big").write_text("#" * 2_000_000)
    with pytest.raises(JobError, match="larger"):
        read_job(str(tmp_path / "big"))
    (tmp_path / "latin").write_bytes(b"name: \xff")
    with pytest.raises(JobError, match="UTF-8"):
        read_job(str(tmp_path / "latin"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data: {train: s, source: a.svm}\noutputs:\n  model: ../m\n", 3),
        ("data: {source: a.svm, train: out/../../s}\n", 1),
        ("data: {train: s, test: s}\noutputs:\n  predictions: /a/../../p\n", 3),
        ("data: {train: s, test: s}\noutputs:\n  evaluation: ../e.json\n", 3),
        ("data: {train: s}\nrun:\n  dir: ../../run\n", 3),
        ("data: {train: s}\noutputs:\n  report: x/../../r.html\n", 3),
        ("steps:\n- export: {model: m, out: ../.bashrc, to: numpy}\n", 2),
        ("steps:\n- predict: {model: ../m, data: s, output: '${HOME}/../p'}\n", 2),
    ],
)
def test_nothing_is_written_above_where_a_job_says(tmp_path, monkeypatch, text, line):
    """A path that climbs is refused before the first step, with --overwrite too."""
    from click.testing import CliRunner

    from bigclf.cli import main

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "job.yaml").write_text(text)
    monkeypatch.chdir(tmp_path / "in")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for words in (["run", "job.yaml"], ["run", "job.yaml", "--overwrite"], ["run", "job.yaml", "--dry-run"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2 and f"job.yaml, line {line}: " in done.output and "'..' has no place" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["in"] and len(list((tmp_path / "in").iterdir())) == 1


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


# What a step may hold


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("path: {data: d, output: o, C: [0.1, 1, 10]}", "path d --output=o --C=0.1,1,10"),
        ("path: {data: d, output: o, C: '0.1,1'}", "path d --output=o --C=0.1,1"),
        ("sweep: {data: d, output: o, grid: {C: [0.1, 1]}}", "sweep d --output=o '--grid=C=[0.1, 1]'"),
        ("fit: {data: [a, b], output: o, class_weight: {x: 2, y: 1}}", "fit a b --output=o --class-weight=x=2,y=1"),
        ("fit: {data: d, output: o, columns: {label: y}}", "fit d --output=o --columns=label=y"),
        ("fit: {data: d, output: o, params: {eta: 0.5}, algo: perceptron}", None),
    ],
)
def test_lists_and_tables_of_steps(step, expected):
    made = job(f"steps:\n- {step}\n")
    if expected is None:
        with pytest.raises(JobError, match="line 2: unknown parameter 'eta' in 'params'; perceptron has no"):
            made.steps(lambda path: False)
    else:
        assert words(made) == [shlex.split(expected)]


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        ("sweep:\n    data: d\n    output: o\n    algo: dcd\n    grid:\n      Cc: [1]", 7, "unknown parameter 'Cc'"),
        ("sweep:\n    data: d\n    output: o\n    grid:\n      C: 1", 6, "must be a list of values"),
        ("sweep:\n    data: d\n    output: o\n    grid: C=1,2", 5, "'grid' must be a table"),
        ("path:\n    data: d\n    output: o\n    c: 1", 5, "unknown key 'c' of path"),
        ("path:\n    data: d\n    output: o\n    C: 1\n    algo: newglmet", 6, "did you mean newglmnet"),
        ("fit:\n    data: d\n    output: o\n    C: [1, 2]", 5, "'C' of fit takes one value, not a list"),
        ("fit:\n    data: d\n    output: o\n    param:\n      schedul: x", 6, "in 'param'; did you mean schedule"),
        ("fit:\n    data: d\n    out: o", 4, "unknown key 'out' of fit; did you mean output. "),
        ("convert:\n    data: d\n    out: o", 3, "unknown key 'data' of convert; did you mean sources. "),
        ("fit:\n    data: d\n    output: {a: b}", 4, "'output' of fit takes one value, not a table"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_sweep_or_a_path(options, line, message):
    with pytest.raises(JobError, match=f"x.yaml, line {line}: .*{message}"):
        job(f"steps:\n- {options}\n").steps(lambda path: False)


def test_columns_are_a_list_or_text_with_commas():
    given = "data: {train: t.csv}\nmethod: {label: y, numeric: %s, categorical: [c], text: t}\noutputs: {model: m}\n"
    for numeric in ("[a, b]", "'a,b'"):
        (made,) = job(given % numeric).steps(lambda path: False)
        assert {"--numeric=a,b", "--categorical=c", "--text=t"} <= set(made.words)
    for numeric, message in (
        ("['a,b']", "'numeric' of fit cannot have 'a,b', which has a comma; a spec"),
        ("[a, [b]]", r"'numeric' of fit lists single values, not \['b'\]"), ("[a, null]", ".*single values, not None"),
        ("[]", "'numeric' of fit is empty: leave it out"),
    ):  # fmt: skip
        with pytest.raises(JobError, match=f"line 2: {message}"):
            list(job(given % numeric).steps(lambda path: False))


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ("data: {train: t}\noutputs: {model: [m, n]}", 2, "'outputs.model' takes one value, not a list"),
        ("data: {train: t}\nrun: {dir: {a: b}}", 2, "'run.dir' takes one value, not a table"),
        ("data:\n  train: [t, null]", 2, "'data' of fit lists single values, not None"),
        ("data:\n  train: [[t]]", 2, r"'data' of fit lists single values, not \['t'\]"),
        ("data:\n  train: {a: b}", 2, "'data' of fit lists single values, not {'a': 'b'}"),
        ("data:\n  train: [t, --overwrite]", 2, "'data' of fit cannot be '--overwrite', which reads"),
        ("steps:\n- convert: {out: o, sources: -x}", 2, "'sources' of convert cannot be '-x'"),
        ("data:\n  train: t\n  columns: {label: null}", 3, "'data.columns' names one column for 'label'.*not None"),
        ("data:\n  train: t\n  columns: {label: 'a,b'}", 3, "'data.columns' names one column for 'label'.*not 'a,b'"),
    ],
)
def test_what_is_no_single_value_is_refused_where_one_is_meant(lines, line, message):
    with pytest.raises(JobError, match=f"line {line}: {message}"):
        list(job(f"{lines}\n").steps(lambda path: False))


def test_null_leaves_a_parameter_of_the_method_out():
    for said in ("method: {algo: dcd, inner_rounds: null}", "method: {algo: dcd}"):
        (made,) = job(f"data: {{train: t}}\n{said}\n").steps(lambda path: False)
        assert not [word for word in made.words if "inner_rounds" in word]


def test_weights_of_classes_that_are_none_are_refused_with_their_line(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("data: {train: t}\nmethod:\n  class_weight: [1, 2]\n")
    said = CliRunner().invoke(main, ["run", str(path), "--dry-run"])
    assert said.exit_code == 2 and "job.yaml, line 3: fit: Invalid value for --class-weight" in said.output


@pytest.mark.parametrize(("key", "section"), [("memory", "limits"), ("seed", "run"), ("workers", "cluster")])
def test_a_key_of_another_section_is_sent_there(key, section):
    with pytest.raises(JobError, match=f"line 3: 'method.{key}' belongs to '{section}'"):
        job(f"data: {{train: t}}\nmethod:\n  {key}: 1\n").steps(lambda path: False)


# The schema


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema")
    from bigclf.cli.jobs.schema import schema

    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def accepted(text):
    """Whether the loader takes the job, its commands parsed."""
    from bigclf.cli import main
    from bigclf.cli.run import make_context

    try:
        loaded = Job(text, "x.yaml", {"DATA": "/d"})
        with click.Context(main) as ctx:
            for step in loaded.steps(lambda path: False):
                make_context(click.Context(main, parent=ctx), loaded, step, {"resume": False})
    except JobError:
        return False
    return True


BAD = [
    ("tol: 1e-3", "tool: 1e-3"), ("tol: 1e-3", "tol: -1"), ("tol: 1e-3", "tol: [1]"), ("algo: dcd", "algo: dce"),
    ("algo: dcd", "algo: perceptron"), ("C: 1", "eta: 1"), ("bias: none", "bias: some"), ("seed: 3", "seed: x"),
    ("seed: 3", "groups: 0"), ("scores: true", "scores: 3"), ("n_features: 123", "n_feature: 1"),
    ("name: a9a", "nam: x"),
    ("train: a9a/train", "trian: x"), ("C: 1", "memory: 1GB"), ("limits:", "limit:"),
    ("limits:", "cluster: {workers: 2, patience: {idel: 1}}\nlimits:"), ("method:", "steps: []\nmethod:"),
]  # fmt: skip
FINE = [
    ("tol: 1e-3", "tol: 0.5"), ("tol: 1e-3", "epochs: 3"), ("algo: dcd", "loss: hinge"), ("bias: none", "bias: null"),
    ("C: 1", "C: ${HOME:-2}"), ("seed: 3", "seed: null"), ("scores: true", "proba: false"), ("name: a9a", "name: 7"),
    ("algo: dcd\n  C: 1\n  bias: none\n  working_set: 0.5", "algo: arow\n  r: 0.1"),
    ("limits:\n  memory", "limits:\n  epochs: 2\n  memory"),
    ("limits:", "cluster: {workers: '${S:-2}', patience: {idle: 1}}\nlimits:"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [("", ""), *FINE, *BAD])
def test_the_schema_agrees_with_the_loader(old, new, validator):
    import yaml

    text = GOOD.replace(old, new, 1)
    assert text != GOOD or not old
    assert accepted(text) == ((old, new) not in BAD)
    assert validator.is_valid(yaml.safe_load(text.replace("working_set: 0.5\n", "working_set: 0.5\n"))) == accepted(
        text
    )


STEPS = [
    ("fit: {data: d, output: o}", True), ("fit: {data: d}", False), ("fit: {data: d, output: o, c: 1}", False),
    ("fit: {data: d, output: o, algo: pa9}", False), ("path: {data: d, output: o, C: [1, 2]}", True),
    ("sweep: {data: d, output: o, grid: {C: [1, 2]}, folds: 3}", True), ("sweep: {data: d, output: o}", False),
    ("convert: {sources: [a, b], out: c, overwrite: true}", True), ("convert: {sources: a}", False),
    ("rm: {data: x}", False), ("inspect: {things: x}", True), ("fit: {data: d, output: o, C: [1, 2]}", False),
]  # fmt: skip


@pytest.mark.parametrize(("step", "good"), STEPS)
def test_the_schema_agrees_about_steps(step, good, validator):
    import yaml

    text = f"steps:\n- {step}\n"
    assert accepted(text) == good == validator.is_valid(yaml.safe_load(text))


def test_the_schema_knows_every_job_here(validator):
    import yaml
    from making import PACKAGE

    jobs = sorted((PACKAGE.parent / "jobs").glob("*.yaml"))
    assert len(jobs) > 5
    for path in jobs:
        assert not [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text()))], path


def test_run_prints_the_schema():
    from click.testing import CliRunner

    from bigclf.cli import main

    result = CliRunner().invoke(main, ["run", "--schema"])
    assert result.exit_code == 0 and '"A bigclf job"' in result.output


# The jobs of the repository

RUN = ("convert", "retrain")  # the smallest; the others are checked to their last option


def jobs_here():
    from making import PACKAGE

    return sorted((PACKAGE.parent / "jobs").glob("*.yaml"))


@pytest.mark.parametrize("path", jobs_here(), ids=lambda path: path.stem)
def test_the_jobs_here_are_sound(path, tmp_path, monkeypatch):
    from test_cli import bigclf

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGCLF_DATA", "/data")
    out, _ = bigclf("run", path, "--dry-run")
    assert "\n$ " in out or out.startswith("$ ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*RUN, *(pytest.param(path.stem, marks=pytest.mark.slow) for path in jobs_here()
                                          if "generate:" in path.read_text() and path.stem not in RUN)])  # fmt: skip
@pytest.mark.long
def test_the_jobs_here_run_on_made_up_rows(name, tmp_path, monkeypatch):
    from test_cli import bigclf

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    (path,) = [path for path in jobs_here() if path.stem == name]
    text = path.read_text()
    for rows in ("20000", "10000", "2000"):
        text = text.replace(f"rows: {rows},", "rows: 1500," if rows == "20000" else "rows: 300,")
    (tmp_path / "job.yaml").write_text(text.replace("chunk_nnz: 100000", "chunk_nnz: 10000"))
    bigclf("run", "job.yaml")
    assert list(tmp_path.glob("out/made/*.bigclf")) or name in ("convert", "sweep")


@pytest.mark.slow
def test_text_that_was_made_up_is_used_again(tmp_path, monkeypatch):
    from test_cli import bigclf

    monkeypatch.chdir(tmp_path)
    job = "steps:\n- generate: {out: t.svm, rows: 100}\n- convert: {sources: t.svm, out: s, overwrite: true}\n"
    (tmp_path / "job.yaml").write_text(job)
    bigclf("run", "job.yaml")
    made = (tmp_path / "t.svm").stat().st_mtime_ns
    bigclf("run", "job.yaml")
    assert (tmp_path / "t.svm").stat().st_mtime_ns == made
    bigclf("run", "job.yaml", "--overwrite")
    assert (tmp_path / "t.svm").stat().st_mtime_ns > made


@pytest.mark.data
@pytest.mark.parametrize("name", ["train-dcd", "retrain"])
def test_the_jobs_here_run_on_sets(name, tmp_path, monkeypatch, data_set):
    from test_cli import bigclf

    monkeypatch.chdir(tmp_path)
    for variable, value in (("SOURCE", data_set("a9a/a9a.gz")), ("TEST", data_set("a9a/a9a.t.gz")),
                            ("MORE", data_set("a9a/a9a.t.gz")), ("FEATURES", "123"), ("OUT", "out/a9a")):  # fmt: skip
        monkeypatch.setenv(variable, str(value))
    (path,) = [path for path in jobs_here() if path.stem == name]
    bigclf("run", path)
    assert list(tmp_path.glob("out/a9a/*.bigclf"))


@pytest.mark.parametrize("line", ["fit job.yaml -o m", "plan job.yaml", "convert job.yaml s"])
def test_a_job_in_place_of_rows_is_told_of(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("data: {train: t}\n")
    done = CliRunner().invoke(main, line.split(), prog_name="bigclf")
    assert done.exit_code and "job.yaml: is YAML: a job, whose commands `bigclf run JOB.yaml --dry-run`" in done.output
