"""Certificates: what is made, what is refused before a connection is tried, and refusals in plain words."""

import contextlib
import datetime
import socket
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'bigclf[tls]'")

import dask
import distributed
import yaml
from making import environment, random_rows, shards_of

import bigclf
from bigclf import machine, tls
from bigclf.cluster import link
from bigclf.cluster.link import connect
from bigclf.errors import ClusterError

FILES = ["ca", "client", "node"]
OTHER = {"ca_file": "tls.ca-file", "client_cert": "tls.client.cert", "client_key": "tls.client.key"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two directories of certificates whose authorities do not know each other."""
    directories = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    for directory in directories:
        assert tls.main([str(directory)]) == 0
    return directories


def configured(directory, **other):
    """Dask's settings as ``tls.yaml`` has them, with other files for some."""
    comm = yaml.safe_load((directory / "tls.yaml").read_text())["distributed"]["comm"]
    settings = {"require-encryption": comm["require-encryption"], "tls.ca-file": comm["tls"].pop("ca-file")}
    settings |= {f"tls.{role}.{what}": path for role, files in comm["tls"].items() for what, path in files.items()}
    settings |= {OTHER[name]: str(path) for name, path in other.items()}
    return dask.config.set({f"distributed.comm.{name}": value for name, value in settings.items()})


@pytest.fixture(scope="module")
def cluster(made):
    """A TLS scheduler and a worker in this process; what they are configured by is theirs alone."""
    with configured(made[0]):
        security = distributed.Security()
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(1, threads_per_worker=1, processes=False, protocol="tls://", security=security,
                                  **here) as there:  # fmt: skip
        yield there


@pytest.fixture
def refused(cluster, monkeypatch):
    """(address) -> what ``bigclf.fit`` says, which fails before any row is read."""

    def ask(address=None):
        with pytest.raises(ClusterError) as error:
            bigclf.fit([[1.0], [-1.0]], [1, 0], algo="pa1", workers=address or cluster.scheduler_address)
        return str(error.value)

    return ask


def expired(directory, name, out):
    """The certificate with the same key, signed anew, but its days are over."""
    authority = tls._authority(str(directory))
    key = (directory / f"{name}-key.pem").read_bytes()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    old = x509.load_pem_x509_certificate((directory / f"{name}.pem").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        old.issuer, old.subject, load_pem_private_key(key, None).public_key(), x509.random_serial_number(),
        now - datetime.timedelta(days=2), now - datetime.timedelta(days=1), [*old.extensions],
    )  # fmt: skip
    out.write_bytes(tls._pem(builder.sign(authority[1], hashes.SHA256())))
    return out


# What is made


def test_an_authority_and_two_certificates_whose_keys_are_their_owners(made):
    ours = made[0]
    assert sorted(path.name for path in ours.iterdir()) == sorted(
        [f"{name}{end}.pem" for name in FILES for end in ("", "-key")] + ["tls.yaml"]
    )
    for name in FILES:
        assert stat.S_IMODE((ours / f"{name}-key.pem").stat().st_mode) == 0o600
    for name, purposes in (("node", "TLS Web Client Authentication, TLS Web Server Authentication"),
                           ("client", "TLS Web Client Authentication")):  # fmt: skip
        words = ["openssl", "x509", "-noout", "-ext", "extendedKeyUsage", "-in", str(ours / f"{name}.pem")]
        with contextlib.suppress(FileNotFoundError):  # a second reader where there is one
            assert subprocess.run(words, capture_output=True, text=True).stdout.split("\n")[1].strip() == purposes
        left = tls.ends(str(ours / f"{name}.pem")) - datetime.datetime.now(datetime.UTC)
        assert 364 <= left.days <= 365
        assert tls.wrong_with(tls.of_directory(str(ours), name)) == []


def test_the_authority_signs_no_other_authority_and_is_not_replaced(made, tmp_path, capsys):
    from cryptography import x509

    ours = made[0]
    authority = x509.load_pem_x509_certificate((ours / "ca.pem").read_bytes())
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
    before = (ours / "ca-key.pem").read_bytes()
    assert tls.main([str(ours)]) == 1 and "--renew" in capsys.readouterr().err
    assert (ours / "ca-key.pem").read_bytes() == before
    assert tls.main([str(tmp_path), "--renew"]) == 1 and "where their authority was made" in capsys.readouterr().err


def test_renewed_certificates_are_of_the_same_authority(tmp_path, capsys):
    tls.make(str(tmp_path), days=1)
    authority, first = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "node.pem").read_bytes()
    assert tls.main([str(tmp_path), "--renew", "--days", "30"]) == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority and (tmp_path / "node.pem").read_bytes() != first
    capsys.readouterr()
    assert tls.main([str(tmp_path), "--check"]) == 0 and capsys.readouterr().out.count(": sound, until ") == 2


def test_what_is_wrong_is_seen_before_a_connection_is_tried(made, tmp_path, capsys):
    ours, theirs = made
    mixed = tls.Files(str(theirs / "ca.pem"), str(ours / "client.pem"), str(ours / "client-key.pem"))
    assert tls.wrong_with(mixed) == [f"{ours}/client.pem was not signed by the authority in {theirs}/ca.pem"]
    assert tls.wrong_with(mixed._replace(key="/nowhere.pem")) == ["there is no file /nowhere.pem"]
    assert "is not a certificate" in tls.wrong_with(mixed._replace(certificate=mixed.key))[0]
    now = datetime.datetime.now(datetime.UTC)
    sound = mixed._replace(authority=str(ours / "ca.pem"))
    assert "expired on" in tls.wrong_with(sound, now + datetime.timedelta(days=400))[0]
    assert "clock" in tls.wrong_with(sound, now - datetime.timedelta(days=1))[0]
    for name in ("ca.pem", "node-key.pem"):
        (tmp_path / name).write_bytes((ours / name).read_bytes())
    expired(ours, "node", tmp_path / "node.pem")
    assert tls.main([str(tmp_path), "--check"]) == 1 and "node.pem expired on" in capsys.readouterr().out


def test_without_the_library_it_says_how_to_get_it(tmp_path):
    code = "import sys; sys.modules['cryptography'] = None; from bigclf import tls; sys.exit(tls.main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "new")], env=environment(), capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("error:") and "bigclf[tls]" in done.stderr


# Who is let in


def test_with_its_certificates_a_run_has_the_bits_of_this_process(made, cluster, tmp_path, quiet):
    x, y = random_rows(60, 30)
    shards_of(tmp_path / "shards", x, y, chunk_nnz=200)
    run = dict(data=str(tmp_path / "shards"), algo="pa1", epochs=2, groups=2)
    with configured(made[0]):
        assert bigclf.fit(workers=cluster.scheduler_address, **run).digest() == bigclf.fit(**run).digest()


def test_the_doctor_tells_how_long_the_certificate_is_valid(made, cluster):
    from bigclf.cli import doctor

    with configured(made[0]):
        told = doctor.examined(cluster.scheduler_address, None, 10)
    (found,) = [c for c in doctor.cluster_checks(machine.facts(), told) if c.about == "certificate"]
    assert found.state == doctor.OK and f"{made[0]}/client.pem is valid for 364 days more" in found.text
    told["certificate"]["days_left"] = 3
    (found,) = [c for c in doctor.cluster_checks(machine.facts(), told) if c.about == "certificate"]
    assert found.state == doctor.WARNING and "--renew" in found.advice


def test_processes_of_this_machine_need_none(made):
    """Where encryption is required: what never leaves the machine is as it was."""
    with configured(made[0]), contextlib.closing(connect(1)) as link:
        assert link.address.startswith("tcp://127.0.0.1:") and link.count(10) == 1


def test_who_is_refused_is_told_why(made, cluster, refused, tmp_path):
    ours, theirs = made
    address = cluster.scheduler_address
    plain = address.replace("tls://", "tcp://")
    assert "wants certificates" in refused() and "DASK_CONFIG" in refused()
    assert f"wants TLS: write {address}" in refused(plain)
    with configured(ours):
        assert f"requires encryption, and this address does not: write {address}" in refused(plain)
    with configured(theirs):
        assert f"the scheduler's certificate was not signed by the authority in {theirs}/ca.pem" in refused()
    with configured(ours, client_cert=theirs / "client.pem", client_key=theirs / "client-key.pem"):
        assert f"{theirs}/client.pem was not signed by the authority in {ours}/ca.pem" in refused()
    with configured(ours, client_cert=expired(ours, "client", tmp_path / "late.pem")):
        assert f"{tmp_path}/late.pem expired on" in refused()
    with configured(ours, client_cert=tmp_path / "none.pem"):
        assert f"there is no file {tmp_path}/none.pem" in refused()


def test_the_scheduler_refuses_what_only_it_can_see(made, cluster, refused, tmp_path, monkeypatch):
    """Without a look at the files first, as where ``cryptography`` is missing."""
    ours, theirs = made
    monkeypatch.setattr(tls, "wrong_with", lambda given: [])
    both = tmp_path / "both.pem"  # believes either authority, and shows the wrong certificate
    both.write_bytes((ours / "ca.pem").read_bytes() + (theirs / "ca.pem").read_bytes())
    with configured(ours, ca_file=both, client_cert=theirs / "client.pem", client_key=theirs / "client-key.pem"):
        said = refused()  # the reason, or only that it ended the connection: whichever comes first
        assert f"{theirs}/client.pem" in said and "another authority sign" in said
    with configured(ours, client_cert=expired(ours, "client", tmp_path / "late.pem")):
        assert f"ends the connection when it sees {tmp_path}/late.pem" in refused()


def test_a_scheduler_that_has_expired_or_speaks_no_tls(made, refused, tmp_path):
    ours = made[0]
    nodes = expired(ours, "node", tmp_path / "node.pem")
    security = distributed.Security(tls_ca_file=str(ours / "ca.pem"), tls_scheduler_cert=str(nodes),
                                    tls_scheduler_key=str(ours / "node-key.pem"), require_encryption=True)  # fmt: skip
    for more, said in (({"protocol": "tls://", "security": security}, "the scheduler's own certificate has expired"),
                       ({"protocol": "tcp://"}, "does not speak TLS, so nothing was sent; is it tcp://")):  # fmt: skip
        scheduler = Alone(**more)
        with contextlib.closing(scheduler), configured(ours):
            assert said in refused(f"tls://127.0.0.1:{scheduler.port}")


class Alone:
    """A scheduler in a thread of its own, which nobody is connected to."""

    def __init__(self, **options):
        from distributed.utils import LoopRunner, sync

        self._runner = LoopRunner(asynchronous=False)
        self._runner.start()
        self._sync = lambda work: sync(self._runner.loop, work)

        async def start():
            return await distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, **options)

        self.scheduler = self._sync(start)
        self.port = int(self.scheduler.address.rsplit(":", 1)[1])

    def close(self):
        self._sync(self.scheduler.close)
        self._runner.stop()


def test_nobody_there_is_no_matter_of_certificates(made, monkeypatch):
    monkeypatch.setattr(link, "REFUSAL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with configured(made[0]), pytest.raises(ClusterError, match="no Dask scheduler answers at"):
        connect(f"tls://127.0.0.1:{port}", timeout=0.5)


@pytest.fixture
def silent():
    """A port that accepts connections and never says a word, as a scheduler that was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.timeout(60, method="signal")  # Dask's client, whatever its timeout, waits for the greeting without end
@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_scheduler_that_says_nothing_is_not_waited_for(scheme, made, silent):
    settings = configured(made[0]) if scheme == "tls" else contextlib.nullcontext()
    with settings, pytest.raises(ClusterError) as error:
        connect(f"{scheme}://127.0.0.1:{silent}", timeout=0.5)
    text = str(error.value)
    assert f"'{scheme}://127.0.0.1:{silent}'" in text and "accepted, and then nothing was said for 0.5 s" in text
    assert "stopped or overloaded" in text and "a proxy with nothing behind it" in text


@pytest.mark.timeout(60, method="signal")
def test_a_scheduler_that_fell_silent_is_asked_again_later(silent, monkeypatch):
    monkeypatch.setattr(link, "AGAIN_SECONDS", 0.3)
    lost = SimpleNamespace(scheduler=SimpleNamespace(address=f"tcp://127.0.0.1:{silent}"),
                           security=distributed.Security())  # fmt: skip
    assert not link.Link(lost, []).again()


def test_a_name_that_nobody_knows_is_no_matter_of_waiting():
    error = OSError("Timed out trying to connect")  # as distributed raises it
    error.__cause__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    for address in ("tcp://node1:8786", "tls://node1:8786"):
        assert "no machine of that name" in tls.explanation(address, tls.Files(None, None, None), error)


@pytest.mark.parametrize("address", ["TCP://h:8786", "h:8786", "tcp://h:8786"])
def test_addresses_are_read_as_dask_reads_them(address, monkeypatch):
    nothing = tls.Files(None, None, None)
    assert "write tls://h:8786" in tls.refusal(address, nothing, True) and tls.refusal(address, nothing, False) is None
    assert "names none" in tls.refusal("TLS://h:8786", nothing, False)
    monkeypatch.setattr(tls, "speaks_tls", lambda _: True)
    assert "write tls://h:8786, and" in tls.explanation(address, nothing, OSError("closed"))
    monkeypatch.setattr(tls, "speaks_tls", lambda _: False)
    assert "is it tcp://h:8786?" in tls.explanation("TLS://h:8786", nothing, OSError("EOF"))
