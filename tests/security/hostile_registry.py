#!/usr/bin/python3
"""A registry that answers as no honest one does, and who asks it.

usage: hostile_registry.py serve TLS LAYOUTS
       hostile_registry.py ask COMMAND... -- REPOSITORY...

`serve` listens on fault.test's address with the lab's certificate (TLS: the folder that has it). The repository's name says what it
does: `http/KIND` misbehaves by the method KIND below, `image/CASE` is a case of hostile_images.py, whose layouts are in LAYOUTS.
`ask` runs COMMAND with {image} replaced, for each repository, and prints a row: the repository, exit status, seconds, the peak MiB of
every program of Situla's that ran meanwhile, and the error.
"""
import glob
import hashlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST, PORT = "fault.test", 8443
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PIECE = b"x" * 65536
MOST = 200_000_000  # what is endless ends here: whoever reads so much reads anything
LAYER = os.urandom(2_000_000)


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


CONFIG = b'{"architecture":"amd64","os":"linux","config":{}}'
HONEST = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": {"digest": digest(CONFIG), "size": len(CONFIG)},
                     "layers": [{"digest": digest(LAYER), "size": len(LAYER), "mediaType": "application/vnd.oci.image.layer.v1.tar"}]}).encode()


class Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    layouts = ""

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.close_connection = True
        parts = self.path.split("?")[0].split("/")
        try:
            if parts[2:3] == ["http"] and hasattr(self, parts[3]):
                getattr(self, parts[3])(parts[4], parts[5])
            elif parts[2:3] == ["image"]:
                self.image(parts[3], parts[4], parts[5])
            elif parts[1] == "token":
                self.endless(b"HTTP/1.1 200 OK\r\n\r\n", PIECE)
            else:
                self.answer(b"{}")
        except OSError:
            pass  # the other side has had enough

    def answer(self, content, status="200 OK", more=b""):
        self.wfile.write(b"HTTP/1.1 " + status.encode() + b"\r\nContent-Type: " + MANIFEST.encode() + b"\r\nContent-Length: %d\r\n" % len(content) +
                         b"Connection: close\r\n" + more + b"\r\n" + content)

    def honest(self, kind, name):
        self.answer(HONEST if kind == "manifests" else LAYER if name == digest(LAYER) else CONFIG)

    def endless(self, start, piece, pause=0.0):
        self.wfile.write(start)
        sent = 0
        while sent < MOST:
            self.wfile.write(piece)
            self.wfile.flush()
            sent += len(piece)
            time.sleep(pause)

    def image(self, case, kind, name):
        path = os.path.join(self.layouts, case)
        if kind == "manifests" and ":" not in name:
            with open(os.path.join(path, "index.json"), encoding="utf-8") as index:
                name = json.load(index)["manifests"][0]["digest"]
        file = os.path.join(path, "blobs", "sha256", name.split(":")[1])
        size = os.path.getsize(file)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + MANIFEST.encode() + b"\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size)
        with open(file, "rb") as content:
            while piece := content.read(1 << 20):
                self.wfile.write(piece)

    # --- kinds

    def endless_headers(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"x" * 1000 + b"\r\n")

    def header_of_100_mb(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\nX-Header: ", PIECE)

    def endless_interim_answers(self, *_):
        self.endless(b"", b"HTTP/1.1 103 Early Hints\r\nX: " + b"x" * 1000 + b"\r\n\r\n")

    def endless_redirects(self, kind, name):
        self.answer(b"", "307 Temporary Redirect", b"Location: https://%s:%d/v2/http/endless_redirects/%s/%s\r\n" % (HOST.encode(), PORT, kind.encode(), name.encode()))

    def redirect_to_a_file(self, *_):
        self.answer(b"", "307 Temporary Redirect", b"Location: file:///etc/passwd\r\n")

    def redirect_to_http(self, *_):
        self.answer(b"", "307 Temporary Redirect", b"Location: http://plain.test/v2/tiny/manifests/latest\r\n")

    def redirect_of_100_kb(self, *_):
        self.answer(b"", "307 Temporary Redirect", b"Location: https://" + b"h" * 90_000 + b".test/\r\n")

    def length_too_long(self, *_):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + HONEST)

    def length_too_short(self, *_):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + HONEST)

    def length_of_8_eib(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", PIECE)

    def two_lengths(self, *_):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nContent-Length: %d\r\n\r\n" % len(HONEST) + HONEST)

    def endless_chunks(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n")

    def endless_chunk_size(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 65536)

    def endless_trailers(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(HONEST) + HONEST + b"\r\n0\r\n", b"X: " + b"x" * 1000 + b"\r\n")

    def endless_error(self, *_):
        self.endless(b"HTTP/1.1 404 Not Found\r\n\r\n", b'{"errors":[' + PIECE)

    def endless_token(self, *_):
        self.answer(b"", "401 Unauthorized", b'WWW-Authenticate: Bearer realm="https://%s:%d/token"\r\n' % (HOST.encode(), PORT))

    def endless_refusals(self, *_):
        self.answer(b"", "401 Unauthorized", b'WWW-Authenticate: Basic realm="x"\r\n')

    def long_words(self, *_):
        self.answer(b'{"errors":[{"code":"DENIED","message":"' + b"\\u001b[31mx" * 100_000 + b'"}]}', "403 Forbidden")

    def endless_error_of_a_layer(self, kind, name):
        if name != digest(LAYER):
            return self.honest(kind, name)
        return self.endless(b"HTTP/1.1 403 Forbidden\r\n\r\n", PIECE)

    def layer_too_long(self, kind, name):
        if name != digest(LAYER):
            return self.honest(kind, name)
        return self.endless(b"HTTP/1.1 200 OK\r\n\r\n", PIECE)

    def layer_by_drops(self, kind, name):
        if name != digest(LAYER):
            return self.honest(kind, name)
        return self.endless(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LAYER), b"x", 0.02)

    def manifest_by_drops(self, *_):
        self.endless(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.02)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, tls):
        super().__init__(address, Hostile)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(tls + "/server.crt", tls + "/server.key")

    def finish_request(self, request, client_address):
        try:
            with self.context.wrap_socket(request, server_side=True) as connection:
                Hostile(connection, client_address, self)
        except OSError:
            pass


# --- asking ---------------------------------------------------------------------------------------------------------

class Peaks:
    """The most memory that each program of Situla's had, of all that run meanwhile."""

    def __init__(self):
        self.mib, self.over = {}, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        while not self.over.wait(0.02):
            for status in glob.glob("/proc/[0-9]*/status"):
                try:
                    with open(status, encoding="utf-8") as stream:
                        fields = dict(line.split(":", 1) for line in stream)
                except OSError:
                    continue
                name = fields["Name"].strip()
                if name.startswith("situla") and "VmHWM" in fields:
                    self.mib[name] = max(self.mib.get(name, 0), int(fields["VmHWM"].split()[0]) // 1024)


def ask(arguments):
    cut = len(arguments) - 1 - arguments[::-1].index("--")  # runuser has one of its own
    command, repositories = arguments[:cut], arguments[cut + 1:]
    print("repository\tstatus\tseconds\tmemory\terror", flush=True)
    for repository in repositories:
        words = [word.format(image=f"{HOST}:{PORT}/{repository}") for word in command]
        began = time.monotonic()
        with Peaks() as peaks, tempfile.TemporaryFile() as output:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode
            output.seek(0)
            lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
        memory = " ".join(f"{name}:{mib}" for name, mib in sorted(peaks.mib.items()))
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        print(f"{repository}\t{status}\t{time.monotonic() - began:.1f}\t{memory}\t{' / '.join(errors)}", flush=True)


def main(arguments):
    if arguments[:1] == ["serve"] and len(arguments) == 3:
        Hostile.layouts = arguments[2]
        Server(("127.0.0.6", PORT), arguments[1]).serve_forever()
    elif arguments[:1] == ["ask"] and "--" in arguments:
        ask(arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
