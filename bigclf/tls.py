"""Certificates for a cluster that leaves one machine: ``python -m bigclf.tls DIRECTORY`` makes them.

A certificate authority of your own signs two certificates: ``node`` for the scheduler and the workers, ``client`` for
programs that train, which cannot stand in for a scheduler. Dask asks for no more than a certificate of the authority,
whatever the name of the host, so the authority must sign nothing else; whoever has one of the keys can run any code on
the cluster. ``tls.yaml`` beside them is Dask's configuration that names them and refuses what is not encrypted.

Dask tells of an expired certificate as of a connection that ended; so dates are looked at before a connection is tried,
and what comes back from one that failed is put into words here.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import socket
import ssl
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bigclf import files
from bigclf.errors import BigclfError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    Authority: TypeAlias = tuple[x509.Certificate, PrivateKeyTypes]


DAYS = 365
AUTHORITY_DAYS = 3650
SOON = 14  # days before the end of a certificate from which on it is warned of
ROLES = {"node": ("scheduler", "worker"), "client": ("client",)}  # who shows which certificate
HOW = (
    "export DASK_CONFIG=DIRECTORY with the directory that `python -m bigclf.tls DIRECTORY` made "
    "(bigclf submit: or --tls-ca-file, --tls-cert and --tls-key)"
)


class Files(NamedTuple):
    """Of one process: the authority it believes, the certificate it shows and its key; paths, PEM, or None."""

    authority: str | None
    certificate: str | None
    key: str | None


# Making


def make(directory: str, days: int = DAYS, renew: bool = False) -> list[str]:
    """Make an authority and its two certificates, or only the certificates anew.

    Parameters
    ----------
    directory : made if it is missing. days : until the certificates expire. renew : of the authority that is there.

    Returns
    -------
    list of str : paths of the files written; keys can be read by their owner alone.

    Raises
    ------
    BigclfError : there is an authority already, or, to renew, there is none or its own days are over.
    """
    directory = files.absolute(directory)
    files.make_directory(directory)
    there = files.exists(files.join(directory, "ca.pem"))
    if there and not renew:
        raise BigclfError(f"{directory} has an authority already: renew its certificates with --renew, or name another")
    if renew and not files.exists(files.join(directory, "ca-key.pem")):
        raise BigclfError(f"{directory} has no ca-key.pem: certificates are renewed where their authority was made")
    written = [] if renew else _write(directory, "ca", *_signed("bigclf authority", AUTHORITY_DAYS, None, ()))
    authority = _authority(directory)
    for name in ROLES:
        written += _write(directory, name, *_signed(f"bigclf {name}", days, authority, ROLES[name]))
    path = files.join(directory, "tls.yaml")
    files.publish_text(path, _configuration(directory))
    return [*written, path]


def _signed(name: str, days: int, authority: Authority | None, roles: tuple[str, ...]) -> tuple[bytes, bytes]:
    """A new key and its certificate, PEM; signed by (certificate, key) of an authority, or by itself."""
    x509 = _x509()
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    end = now + datetime.timedelta(days=days)
    if authority is not None:
        end = min(end, authority[0].not_valid_after_utc)
        if end <= now:
            raise BigclfError("the authority itself has expired: make another in a new directory")
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=0 if authority is None else None), True)
        .add_extension(_usage(authority is None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    if authority is not None:
        usages = x509.ExtendedKeyUsageOID
        purposes = [usages.CLIENT_AUTH] + ([usages.SERVER_AUTH] if "worker" in roles else [])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[0].public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False).add_extension(issuer, False)
    certificate = builder.sign(key if authority is None else authority[1], hashes.SHA256())
    return _pem(certificate), _pem(key)


def _usage(signs: bool) -> x509.KeyUsage:
    usage: x509.KeyUsage = _x509().KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return usage


def _pem(thing: PrivateKeyTypes | x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if hasattr(thing, "private_bytes"):
        return bytes(thing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return bytes(thing.public_bytes(Encoding.PEM))


def _write(directory: str, name: str, certificate: bytes, key: bytes) -> list[str]:
    paths = [files.join(directory, f"{name}.pem"), files.join(directory, f"{name}-key.pem")]
    files.publish_bytes(paths[1], key, mode=0o600)
    files.publish_bytes(paths[0], certificate)
    return paths


def _authority(directory: str) -> Authority:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(files.read_bytes(files.join(directory, "ca-key.pem")), None)
    return _x509().load_pem_x509_certificate(files.read_bytes(files.join(directory, "ca.pem"))), key


def _configuration(directory: str) -> str:
    """Dask's configuration; JSON's texts are YAML's too."""
    lines = [
        f"# {HOW.partition(' with')[0].replace('DIRECTORY', directory)}",
        "distributed:",
        "  comm:",
        "    require-encryption: true  # what is not encrypted is refused",
        "    tls:",
        f"      ca-file: {json.dumps(files.join(directory, 'ca.pem'))}",
    ]
    for name, roles in ROLES.items():
        for role in roles:
            lines.append(f"      {role}:")
            for what, end in (("cert", ".pem"), ("key", "-key.pem")):
                lines.append(f"        {what}: {json.dumps(files.join(directory, name + end))}")
    return "\n".join(lines) + "\n"


def _x509() -> ModuleType:
    try:
        from cryptography import x509
    except ImportError:
        raise BigclfError("certificates need one library more: pip install 'bigclf[tls]'") from None
    return x509


# Looking


def of_directory(directory: str, role: str) -> Files:
    """What ``make`` wrote there for a role: "node" or "client"."""
    return Files(*(files.join(directory, name) for name in ("ca.pem", f"{role}.pem", f"{role}-key.pem")))


def wrong_with(given: Files, now: datetime.datetime | None = None) -> list[str]:
    """Why a connection with these files cannot be made, as far as can be seen from here.

    Without the library ``cryptography`` only missing files are found.
    """
    missing = [path for path in given if path is not None and not files.exists(path)]
    if missing:
        return [f"there is no file {path}" for path in missing]
    try:
        certificates = [(path, _load(path)) for path in (given.authority, given.certificate) if path is not None]
    except BigclfError as error:
        return [str(error)]
    except ImportError:
        return []
    now = now or datetime.datetime.now(datetime.UTC)
    found = [text for path, certificate in certificates for text in _out_of_date(path, certificate, now)]
    if not found and len(certificates) == 2 and not _is_signed_by(certificates[1][1], certificates[0][1]):
        found.append(f"{given.certificate} was not signed by the authority in {given.authority}")
    return found


def ends(path: str) -> datetime.datetime:
    """When the certificate expires, UTC.

    Raises
    ------
    ImportError : there is no library ``cryptography``. BigclfError : it is no certificate.
    """
    return _load(path).not_valid_after_utc


def days_left(path: str) -> int | None:
    """Until the certificate expires; None where that cannot be told for want of the library."""
    try:
        return (ends(path) - datetime.datetime.now(datetime.UTC)).days
    except ImportError:
        return None


def _load(path: str) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(files.read_bytes(path))
    except (ValueError, OSError) as error:
        raise BigclfError(f"{path} is not a certificate that can be read: {error}") from None


def _out_of_date(path: str, certificate: x509.Certificate, now: datetime.datetime) -> Iterator[str]:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        yield f"the certificate {path} expired on {end.date()}: `python -m bigclf.tls DIRECTORY --renew` makes another"
    if now < begin:
        yield f"the certificate {path} is valid from {begin} on: is this machine's clock right?"


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


# Putting a refusal into words


def refusal(address: str, given: Files, required: bool) -> str | None:
    """Why a connection to ``address`` need not be tried, or None.

    Parameters
    ----------
    given : this process's files. required : whether nothing but encrypted connections are allowed.
    """
    scheme = place_of(address).scheme
    if scheme != "tls":
        if required and scheme == "tcp":
            return f"Dask's configuration requires encryption, and this address does not: write {_as(address, 'tls')}"
        return None
    if given.authority is None or given.certificate is None:
        return f"the cluster wants certificates, and Dask's configuration names none: {HOW}"
    wrong = wrong_with(given)
    return "; ".join(wrong) if wrong else None


def explanation(address: str, given: Files, error: BaseException) -> str | None:
    """In plain words why there was no connection, where certificates or names are to blame; None if neither is."""
    text = _all_texts(error)
    if "gaierror" in text:
        return "no machine of that name is known here; SSH's own names are not: write its address"
    scheme = place_of(address).scheme
    if scheme != "tls":
        if scheme == "tcp" and speaks_tls(address):
            return f"what listens there wants TLS: write {_as(address, 'tls')}, and name certificates: {HOW}"
        return None
    if "certificate has expired" in text:
        return "the scheduler's own certificate has expired: renew the cluster's certificates and start it again"
    if "CERTIFICATE_VERIFY_FAILED" in text or "TLS certificate does not match" in text and "alert" not in text:
        return f"the scheduler's certificate was not signed by the authority in {given.authority}"
    if "unknown ca" in text:
        return f"the scheduler does not accept {given.certificate}: another authority signed it"
    if "SSL" in text or "EOF" in text or "ConnectionResetError" in text:
        if not speaks_tls(address):
            return f"what listens there does not speak TLS, so nothing was sent; is it {_as(address, 'tcp')}?"
        return (
            f"the scheduler ends the connection when it sees {given.certificate}: did another authority sign it, or "
            "has it expired by the scheduler's clock? `python -m bigclf.tls DIRECTORY --check` tells"
        )
    return None


def _all_texts(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "; ".join(texts)


class Place(NamedTuple):
    """Where a scheduler is: ``scheme`` in small letters, ``host`` without brackets, ``port`` (0: none was said)."""

    scheme: str
    host: str
    port: int


def place_of(address: str) -> Place:
    """The parts of an address, as Dask reads it: without a scheme it is ``tcp``."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    return Place(scheme.lower() or "tcp", host.strip("[]").lower(), int(port) if port.isdecimal() else 0)


def _as(address: str, scheme: str) -> str:
    """The same place under another scheme."""
    return f"{scheme}://{address.rpartition('://')[2]}"


def is_plain(address: str) -> bool:
    """Whether a connection to ``address`` leaves this machine, and nothing encrypts it."""
    scheme, host, _ = place_of(address)
    if scheme in ("tls", "wss", "inproc") or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return True


def speaks_tls(address: str, timeout: float = 2.0) -> bool:
    """Whether something there answers a TLS greeting, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(place_of(address)[1:], timeout) as line, context.wrap_socket(line):
            return True
    except (OSError, ValueError):
        return False


# On the command line


def check(directory: str) -> tuple[list[str], bool]:
    """(lines on what is there, whether all of it can be used)."""
    lines, sound = [], True
    for role in ROLES:
        given = of_directory(directory, role)
        if not files.exists(given.certificate or "") and role == "client":
            continue  # a host that only works has none
        wrong = wrong_with(given)
        sound = sound and not wrong
        lines += wrong or [f"{given.certificate}: sound, until {_day(given.certificate or '')}"]
    return lines, sound


def _day(path: str) -> str:
    try:
        return str(ends(path).date())
    except ImportError:
        return "a day that only bigclf[tls] can read"


def main(words: list[str] | None = None) -> int:
    """0 when they were made or are sound."""
    parser = argparse.ArgumentParser(prog="python -m bigclf.tls", description="Certificates for a cluster of your own.")
    parser.add_argument("directory", help="where they are, or are to be; keep it to yourself")
    parser.add_argument("--days", type=int, default=DAYS, help=f"until they expire  [default: {DAYS}]")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--renew", action="store_true", help="new certificates of the authority that is there")
    what.add_argument("--check", action="store_true", help="are they sound, and until when?")
    given = parser.parse_args(words)
    if given.days < 1:
        parser.error("--days must be at least 1")
    directory = files.absolute(given.directory)
    try:
        if given.check:
            lines, sound = check(directory)
        else:
            lines, sound = [f"wrote {path}" for path in make(directory, given.days, given.renew)], True
            lines.append(f"where programs train: export DASK_CONFIG={directory}")
    except (BigclfError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
