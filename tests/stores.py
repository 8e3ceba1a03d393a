"""Remote stores on loopback for tests: a server of files that fails as it is told, and moto's S3 behind it."""

import contextlib
import hashlib
import http.client
import http.server
import re
import socket
import struct
import threading
import time
from urllib.parse import unquote

TRANSIENT = ("503", "429", "reset", "cut", "short", "silent", "busy")


class FaultServer(http.server.ThreadingHTTPServer):
    """Serves ``files`` (path -> bytes), or what the server at ``behind`` (host, port) answers.

    ``faults`` are taken one by one by requests whose "METHOD path" matches ``where``: a status, "reset" (the
    connection breaks in the body), "cut" (it ends early), "short" (fewer bytes than were asked for, with a length that
    says so), "silent" (no answer for ``silence`` seconds), or a function of the handler.
    """

    daemon_threads = True

    def __init__(self, files=None, behind=None, ranges=True):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.behind, self.ranges = files if files is not None else {}, behind, ranges
        self.faults, self.where, self.silence = [], "", 1.0
        self.asked = []  # (method, path, range) of each request
        self._lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_fault(self, request):
        with self._lock:
            return self.faults.pop(0) if self.faults and re.search(self.where, request) else None

    def handle_error(self, request, client_address):
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.asked.append((self.command, self.path, self.headers.get("Range")))
        fault = self.server.next_fault(f"{self.command} {self.path}")
        if fault == "silent":
            time.sleep(self.server.silence)
            self.close_connection = True
            return
        if callable(fault):
            fault(self)
            return
        if fault is not None and fault.isdigit():
            self.answer(int(fault), {}, b"" if self.command == "HEAD" else b"not now")
            return
        status, headers, content = self._forwarded(body) if self.server.behind else self._own()
        self.answer(status, headers, content, fault)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _own(self):
        path = unquote(self.path.partition("?")[0])
        if path.endswith("/"):
            names = sorted({p[len(path) :].split("/")[0] for p in self.server.files if p.startswith(path)})
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in names)
            return 200 if names else 404, {"Content-Type": "text/html"}, page.encode()
        content = self.server.files.get(path)
        if content is None:
            return 404, {}, b"no such file"
        headers = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Content-Type": "application/octet-stream"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not asked or not self.server.ranges:
            return 200, headers, content
        first, last = int(asked[1]), int(asked[2])
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, headers, content[first : last + 1]

    def _forwarded(self, body):
        link = http.client.HTTPConnection(*self.server.behind, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name != "Connection"}
        link.request(self.command, self.path, body, headers)
        reply = link.getresponse()
        content = reply.read()
        hop = ("connection", "transfer-encoding", "date", "server")
        kept = {name: value for name, value in reply.getheaders() if name.lower() not in hop}
        link.close()
        return reply.status, kept, content

    def answer(self, status, headers, content, fault=None):
        sent = content[: len(content) // 2] if fault in ("short", "cut", "reset") else content
        self.send_response(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(sent) if fault == "short" else len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(sent)
                self.wfile.flush()
        if fault in ("cut", "reset"):
            self.close_connection = True
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                self.connection.close() if fault == "reset" else self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(**options):
    server = FaultServer(**options)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def refusal(status, code):
    """A fault: what S3 says in ``code``, such as SlowDown or ExpiredToken."""

    def answer(handler):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
        handler.answer(status, {"Content-Type": "application/xml"}, b"" if handler.command == "HEAD" else text)

    return answer


@contextlib.contextmanager
def s3(monkeypatch_environ):
    """A FaultServer in front of moto's S3, with a bucket ``data``; the environment names it and its credentials."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    with serving(behind=moto.get_host_and_port()) as server:
        monkeypatch_environ("AWS_ENDPOINT_URL", server.url)
        monkeypatch_environ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch_environ("AWS_SECRET_ACCESS_KEY", "wJalrEXAMPLEKEY")
        monkeypatch_environ("AWS_DEFAULT_REGION", "us-east-1")
        link = http.client.HTTPConnection(*moto.get_host_and_port())
        signed = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"
        link.request("PUT", "/data", headers={"Authorization": signed})
        assert link.getresponse().status == 200
        link.close()
        yield server
    moto.stop()
