"""Whatever --overwrite says, no command writes over what it reads."""

import os

import pytest
from click.testing import CliRunner
from making import random_rows, shards_of

import bigclf
from bigclf.cli import main

LINES = [
    "fit a.csv --label label -o a.csv",
    "fit a.csv --label label -o link.csv",
    "fit a.csv --spec a.yaml -o a.yaml",
    "fit shards -o shards/part-00000.parquet",
    "fit shards -o n.bigclf --report a.csv --evaluate a.csv",
    "fit shards -o a.csv --evaluate a.csv",
    "fit shards -o a.csv --validate a.csv",
    "sweep shards -o shards --grid C=1,2",
    "path shards -o shards --C 1,2",
    "split shards shards",
    "convert a.csv a.csv --label label",
    "calibrate m.bigclf a.csv -o a.csv",
    "evaluate m.bigclf shards -o m.bigclf",
    "evaluate m.bigclf a.csv --report a.csv",
    "predict m.bigclf a.csv -o a.csv",
    "predict m.bigclf shards -o m.bigclf",
    "report m.bigclf -o m.bigclf",
    "report m.bigclf --data a.csv -o a.csv",
    "report m.bigclf --names a.yaml -o a.yaml",
    "export m.bigclf m.bigclf --to numpy",
]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    place = tmp_path_factory.mktemp("inputs")
    shards = shards_of(place / "shards", *random_rows(40, 4, binary=True))
    bigclf.fit(shards, algo="pa1", epochs=1, progress=False).save(place / "m.bigclf")
    (place / "a.csv").write_text("label,x\n" + "p,1\nq,2\n" * 20)
    (place / "a.yaml").write_text("label: label\nfeatures:\n- numeric: x\n")
    (place / "link.csv").symlink_to("a.csv")
    return place


def content(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("line", LINES)
def test_no_command_writes_over_what_it_reads(line, there, monkeypatch):
    monkeypatch.chdir(there)
    before = content(there)
    words = [*line.split(), "--overwrite"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1 and ": is an input; write to another place" in done.output, done.output
    assert content(there) == before


def test_a_model_may_be_replaced_by_what_comes_of_it(there, monkeypatch):
    monkeypatch.chdir(there)
    os.link("m.bigclf", "n.bigclf")
    words = ["fit", "shards", "--init", "n.bigclf", "--algo", "pa1", "--epochs", "1", "-o", "n.bigclf", "--overwrite"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
