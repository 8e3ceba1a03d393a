"""Data, models and runs behind URLs: the same bits as on a disk, whatever the network does."""

import glob
import io
import json
import os

import numpy as np
import pytest
from making import random_rows, shards_of
from stores import TRANSIENT, refusal, s3, serving

import bigclf
from bigclf import files
from bigclf.errors import BigclfError, DataError, RunError, StoreError, masked
from bigclf.files import remote
from bigclf.files.caches import cache_directory

pytest.importorskip("aiohttp", reason="the extra remote")


@pytest.fixture(autouse=True)
def hurried(monkeypatch, tmp_path):
    """No long pauses, and blocks small enough that a small file has some."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(remote, "BLOCK", 4096)
    monkeypatch.setattr(remote, "SILENT_SECONDS", 0.3)
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    remote._blocks_in.cache_clear()
    remote._store_of.cache_clear()
    files._footer_of.cache_clear()
    yield
    remote._store_of.cache_clear()


@pytest.fixture
def server():
    with serving() as found:
        yield found


CONTENT = np.random.default_rng(0).bytes(20_000)


def test_what_is_a_url():
    assert files.is_remote("s3://bucket/key") and files.is_remote("https://host/a")
    for path in ("a/b", "/a//b", "C:/x", "file:///a", b"s3://x", "s3:/a", "://"):
        assert not files.is_remote(path)


def test_a_remote_file_reads_as_a_local_one(server, tmp_path):
    server.files["/x.bin"] = CONTENT
    (tmp_path / "x.bin").write_bytes(CONTENT)
    with files.open_binary(server.url + "/x.bin") as far, open(tmp_path / "x.bin", "rb") as near:
        reads = [(0, 0, 10), (0, 4090, 20), (2, -5, 100), (1, -3, 2), (0, 8192, 9000), (0, 30_000, 5)]
        for whence, offset, size in reads:
            assert far.seek(offset, whence) == near.seek(offset, whence)
            assert far.read(size) == near.read(size)
            assert far.tell() == near.tell()
        far.seek(0)
        near.seek(0)
        assert far.readline() == near.readline() and far.read() == near.read()
    assert files.read_bytes(server.url + "/x.bin") == CONTENT


@pytest.mark.parametrize("fault", [fault for fault in TRANSIENT if fault != "busy"])
def test_what_passes_is_asked_again_and_a_short_read_never_accepted(server, fault):
    server.files["/x.bin"] = CONTENT
    with files.open_binary(server.url + "/x.bin") as file:
        server.faults, server.where = [fault] * 3, "GET"
        assert file.read() == CONTENT
        assert not server.faults
    server.faults, server.where = ["503", "429"], "HEAD"
    assert files.file_size(server.url + "/x.bin") == len(CONTENT)


def test_what_does_not_pass_ends_in_a_clear_error(server, monkeypatch):
    monkeypatch.setattr(remote, "TRIES", 3)
    server.files["/x.bin"] = CONTENT
    server.faults = ["503"] * 100
    with pytest.raises(StoreError, match="failed 3 times") as caught:
        files.exists(server.url + "/x.bin")
    assert caught.value.exit_code == 1
    server.faults = ["403"] * 100
    with pytest.raises(StoreError, match="access was refused.*credentials"):
        files.exists(server.url + "/x.bin")
    server.faults = []
    assert not files.exists(server.url + "/y.bin")
    with pytest.raises(DataError, match="no such file"):
        files.open_binary(server.url + "/y.bin")
    with pytest.raises(DataError, match="no data file matches"):
        files.expand(server.url + "/y.bin")


def test_a_name_that_does_not_resolve(monkeypatch):
    monkeypatch.setattr(remote, "TRIES", 2)
    with pytest.raises(StoreError, match=r"no-such-host\.invalid.*failed 2 times"):
        files.expand("http://no-such-host.invalid/part.parquet")


def test_pauses_grow_and_differ(monkeypatch):
    waits = []
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    for attempt in range(10):
        remote.pause(attempt)
        most = min(remote.LONGEST_PAUSE, 0.1 * 2**attempt)
        assert most / 2 <= waits[-1] <= most
    remote.pause(9)
    assert waits[-1] != waits[-2]


def test_a_server_that_knows_no_ranges():
    with serving(files={"/x.bin": CONTENT}, ranges=False) as server, files.open_binary(server.url + "/x.bin") as file:
        file.seek(5000)
        assert file.read(5000) == CONTENT[5000:10_000]


# The cache


def test_blocks_stay_on_disk_until_the_file_changes(server):
    url = server.url + "/x.bin"
    server.files["/x.bin"] = CONTENT
    for content, asked in ((CONTENT, True), (CONTENT, False), (CONTENT[::-1], True)):
        server.files["/x.bin"] = content
        remote._blocks_in.cache_clear()
        server.asked.clear()
        with files.open_binary(url) as file:
            assert file.read() == content
        assert any(method == "GET" for method, *_ in server.asked) == asked


def test_damaged_blocks_are_fetched_again(server):
    server.files["/x.bin"] = CONTENT
    files.open_binary(server.url + "/x.bin").read()
    kept = glob.glob(os.path.join(cache_directory("remote"), "*"))
    assert len(kept) == 5
    for path in kept:
        with open(path, "r+b") as file:
            file.seek(7)
            file.write(b"\xff\x00")
    remote._blocks_in.cache_clear()
    assert files.open_binary(server.url + "/x.bin").read() == CONTENT


def test_the_cache_is_bounded_and_keeps_what_fits_first(tmp_path):
    found = remote.Found(10_000, 1, False)
    cache = remote.Cache(str(tmp_path), 3 * (1000 + 16))
    for number in range(5):
        cache.keep("u", found, number, bytes(1000))
    assert [cache.load("u", found, n, 1000) is not None for n in range(5)] == [True] * 3 + [False] * 2
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    later = remote.Cache(str(tmp_path), 3 * (1000 + 16))
    assert later.load("u", found, 1, 1000) is not None  # used by the later process: it stays
    for number in range(5, 8):
        later.keep("u", found, number, bytes(1000))
    assert [later.load("u", found, n, 1000) is not None for n in range(8)] == [n in (1, 5, 6) for n in range(8)]


# Secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at s3://KEY:SECRET@bucket/a/b.parquet: gone", "at s3://***@bucket/a/b.parquet: gone"),
        ("'https://host/x?X-Amz-Signature=abc&b=2', row 1", "'https://host/x?***', row 1"),
        ("s3://bucket/part-?.parquet and a@b", "s3://bucket/part-?.parquet and a@b"),
        ("plain text? yes=no", "plain text? yes=no"),
    ],
)
def test_secrets_in_urls_are_masked(text, shown):
    assert masked(text) == shown == masked(shown)
    assert str(BigclfError(text)) == shown and str(DataError(text, file=text)) == f"{shown}: {shown}"


def test_no_secret_is_written_anywhere(server, tmp_path, caplog, monkeypatch):
    """Error, log, run directory with its history and checkpoints, model, cached manifest."""
    x, y = random_rows(300, 20)
    shards_of(tmp_path / "shards", x, y)
    server.files["/d/part-00000.parquet"] = (tmp_path / "shards" / "part-00000.parquet").read_bytes()
    url = server.url.replace("http://", "http://someone:S3CRET@") + "/d/part-00000.parquet?token=T0KEN"
    model = bigclf.fit(
        url, algo="dcd", run_dir=tmp_path / "run", workers=bigclf.Workers(local_dir=tmp_path / "local"), validate=url
    )
    model.save(tmp_path / "model")
    near = bigclf.fit(tmp_path / "shards", algo="dcd")
    assert (model.coef_ == near.coef_).all()
    assert bigclf.predict(model, url, str(tmp_path / "out"))["rows"] == 300
    assert os.listdir(tmp_path / "out") == ["part-00000.parquet"]
    server.faults = ["403"] * 9
    with pytest.raises(StoreError) as caught:
        bigclf.Dataset(url)
    texts = [caplog.text, str(caught.value), repr(caught.value)]
    for folder, _, names in os.walk(tmp_path):
        texts += [files.read_bytes(os.path.join(folder, name)).decode("latin-1") for name in names] + names
    assert not [text for text in texts if "S3CRET" in text or "T0KEN" in text]
    assert "http://***@127.0.0.1" in (tmp_path / "run" / "run.json").read_text()


def test_a_store_that_fails_is_no_damaged_archive_and_says_its_name_once():
    from bigclf.conversion.tables.reading import decompressing

    with pytest.raises(StoreError) as caught, decompressing("s3://b/t.csv.gz"):
        raise StoreError("s3://b/t.csv.gz: access was refused")
    assert str(caught.value) == "s3://b/t.csv.gz: access was refused"
    missing = str(remote._refused("s3://", ImportError("Install s3fs")))
    assert missing.count("s3://") == 1 and missing.startswith("s3:// needs more libraries")


# Shards over http


def test_shards_over_http(server, tmp_path):
    x, y = random_rows(400, 30)
    near = shards_of(tmp_path / "shards", x, y, shard_nnz=1000)
    for path in near.files:
        server.files[f"/data/{os.path.basename(path)}"] = files.read_bytes(path)
    server.faults, server.where = list(TRANSIENT[:5]) * 2, "GET .*parquet"
    far = bigclf.Dataset(server.url + "/data/")
    assert [os.path.basename(p) for p in far.files] == [os.path.basename(p) for p in near.files]
    a, b = (bigclf.fit(data, algo="dcd", memory="100MB") for data in (near, far))
    assert (a.coef_ == b.coef_).all() and not server.faults
    with pytest.raises(StoreError, match="http cannot be written to"):
        a.save(server.url + "/model.bigclf")
    server.files["/data/part-00000.parquet"] = server.files["/data/part-00000.parquet"][:-1] + b"x"
    with pytest.raises(DataError, match="was written to since it was first read"):
        far.check_unchanged()
    del server.files["/data/part-00000.parquet"]
    with pytest.raises(DataError, match="gone"):
        far.check_unchanged()


# S3


@pytest.fixture(scope="module")
def bucket():
    pytest.importorskip("moto", reason="the extra test")
    pytest.importorskip("s3fs", reason="the extra remote")
    with pytest.MonkeyPatch.context() as patch, s3(patch.setenv) as found:
        yield found


def test_everything_on_s3(bucket, tmp_path):
    """Text to shards to model to figures and predictions, through faults, equal to the same on disk."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(600):
        columns = np.sort(rng.choice(50, 6, replace=False)) + 1
        lines.append(f"{rng.choice([-1, 1])} " + " ".join(f"{c}:{rng.integers(1, 9)}" for c in columns))
    text = "\n".join(lines).encode() + b"\n"
    (tmp_path / "rows.svm").write_bytes(text)
    files.publish_bytes("s3://data/text/rows.svm", text)

    bucket.faults, bucket.where = [refusal(503, "SlowDown"), "reset", "short", "503", "cut"], "GET .*/text/|PUT"
    far = bigclf.convert("s3://data/text/*.svm", "s3://data/shards", shard_nnz=1000)
    near = bigclf.convert(tmp_path / "rows.svm", tmp_path / "shards", shard_nnz=1000)
    assert not bucket.faults
    assert [files.read_bytes(p) for p in far.files] == [files.read_bytes(p) for p in near.files] and len(far.files) > 2
    assert files.list_directory("s3://data/shards") == sorted(os.listdir(tmp_path / "shards"))
    with pytest.raises(RunError, match="exists and is not empty"):
        bigclf.convert("s3://data/text/rows.svm", "s3://data/shards")

    options = dict(algo="dcd", tol=1e-4)
    b = bigclf.fit(near, **options)
    bucket.faults, bucket.where = [refusal(503, "SlowDown"), "reset", "short", "cut"], "GET .*parquet"
    a = bigclf.fit("s3://data/shards/*.parquet", run_dir="s3://data/run", **options)
    assert (a.coef_ == b.coef_).all() and not bucket.faults
    again = bigclf.fit("s3://data/shards", run_dir="s3://data/run", resume=True, **options)
    assert (again.coef_ == a.coef_).all()
    records = [json.loads(line) for line in files.read_text("s3://data/run/history.jsonl").splitlines()]
    assert records[-1]["epoch"] == a.result_.history[-1]["epoch"]

    a.save("s3://data/models/m.bigclf")
    model = bigclf.load("s3://data/models/m.bigclf")
    assert (model.coef_ == b.coef_).all()
    assert bigclf.evaluate(model, "s3://data/shards").accuracy == bigclf.evaluate(b, near).accuracy
    first = bigclf.predict(model, "s3://data/shards", "s3://data/scores", scores=True)
    assert first["written"] == len(far.files)
    files.remove("s3://data/scores/part-00001.parquet")
    assert bigclf.predict(model, "s3://data/shards", "s3://data/scores", scores=True)["written"] == 1
    bigclf.predict(b, near, str(tmp_path / "scores"), scores=True)
    for name in os.listdir(tmp_path / "scores"):
        mine = bigclf.data.shards.read_table(f"s3://data/scores/{name}")
        theirs = bigclf.data.shards.read_table(str(tmp_path / "scores" / name))
        assert all((mine[column] == theirs[column]).all() for column in theirs)


@pytest.mark.long
def test_credentials_that_expire_in_the_middle(bucket, tmp_path):
    """A clear error, nothing half-written is taken for data, and the same again goes through."""
    x, y = random_rows(300, 20)
    near = shards_of(tmp_path / "shards", x, y, shard_nnz=800)
    bucket.faults, bucket.where = ["503", *[refusal(400, "ExpiredToken")] * 50], "PUT .*part-00001"
    with pytest.raises(StoreError, match="access was refused.*credentials"):
        shards_of("s3://data/expired", x, y, shard_nnz=800)
    bucket.faults = []
    with pytest.raises(DataError, match="not finished"):
        bigclf.Dataset("s3://data/expired")
    shards_of("s3://data/expired", x, y, shard_nnz=800, overwrite=True)
    assert bigclf.Dataset("s3://data/expired").n_rows == near.n_rows
    bucket.faults, bucket.where = [refusal(403, "ExpiredToken")] * 50, "GET .*part"
    remote._blocks_in.cache_clear()
    files._footer_of.cache_clear()
    with pytest.raises(StoreError, match="access was refused"):
        bigclf.fit("s3://data/expired", algo="dcd")
    bucket.faults = []
    assert (bigclf.fit("s3://data/expired", algo="dcd").coef_ == bigclf.fit(near, algo="dcd").coef_).all()


@pytest.mark.long
def test_sending_is_taken_up_again(bucket, tmp_path):
    """A conversion whose store failed goes on with the shards that had not arrived, over old ones too."""
    x, y = random_rows(300, 20)
    text = "".join(f"{int(b)} " + " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(row) if v) + "\n"
                   for b, row in zip(y, x.toarray() if hasattr(x, "toarray") else x, strict=True))  # fmt: skip
    (tmp_path / "rows.svm").write_text(text)
    options = dict(shard_nnz=800, overwrite=True)
    near = bigclf.convert(tmp_path / "rows.svm", tmp_path / "near", **options)
    bigclf.convert(tmp_path / "rows.svm", "s3://data/sent", seed=5, **options)
    bucket.faults, bucket.where = [refusal(403, "AccessDenied")] * 50, "PUT .*part-00002"
    with pytest.raises(StoreError, match="access was refused"):
        bigclf.convert(tmp_path / "rows.svm", "s3://data/sent", **options)
    bucket.faults = []
    bucket.asked.clear()
    far = bigclf.convert(tmp_path / "rows.svm", "s3://data/sent", **options)
    sent = [path.rpartition("/")[2] for method, path, _ in bucket.asked if method == "PUT" and "/part-" in path]
    assert len(far.files) > 3 and sent == [os.path.basename(path) for path in far.files[2:]]
    assert far.report["bytes_kept"] == len(text)
    assert [files.read_bytes(p) for p in far.files] == [files.read_bytes(p) for p in near.files]
    assert files.list_directory("s3://data/sent") == sorted(os.listdir(tmp_path / "near"))


@pytest.mark.parametrize("name", ["with space", "100%", "a+b=c", "ünï", "a#b", "q?x"])
@pytest.mark.long
def test_odd_names_on_s3(bucket, name):
    url = f"s3://data/odd/{name}.txt"
    files.publish_bytes(url, b"content")
    assert files.expand(url) == [url]
    assert files.read_bytes(url) == b"content" and files.file_size(url) == 7
    assert url in files.expand("s3://data/odd")
    files.remove(url)
    assert not files.exists(url)


def test_few_descriptors(server):
    """Many remote files through a process that may open 64."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(120):
        server.files[f"/f/{number}.bin"] = b"x" * 100
    held = [io.BufferedReader(remote.Reader(f"{server.url}/f/{number}.bin")) for number in range(60)]
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1 if os.path.isdir("/proc/self/fd") else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, before[1]))
    try:
        held += [io.BufferedReader(remote.Reader(f"{server.url}/f/{number}.bin")) for number in range(60, 120)]
        assert sum(len(file.read()) for file in held) == 12_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
