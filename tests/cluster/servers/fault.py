"""A registry that misbehaves. The repository's name says how; the layers behind it are those of tiny:latest, or of debian:12 where the
name ends in -large. The layer that is tampered with is the biggest one.

Each repository has a manifest of its own, so that no store can have the image already.

fault.test/NAME:      what happens
  good                nothing: the control
  status-CODE         every manifest request is answered with CODE (401 403 404 429 500 503); 429 with Retry-After: 1
  blob-status-CODE    manifests are fine, blob requests get CODE
  flaky               the first request of each blob is answered with 503, the second one works
  bad-digest          a layer's bytes are not those of its digest (same size)
  bad-manifest-digest the manifest asked for by tag announces a digest in its header that is not that of its bytes; by digest likewise
  truncated           the connection closes in the middle of a layer
  reset               the same with a TCP reset
  short               a layer's Content-Length is half its size, and only that half comes
  wrong-size          a layer is longer than its descriptor says
  slow                a layer comes at a rate that makes it last 30 seconds
  stall               a layer stops for good in the middle, the connection stays open
  garbage-manifest    the manifest is not JSON
  empty-manifest      the manifest is {}
  layers-403          the layers are refused, the configuration is not
  borrowed            the same, and the manifest is byte for byte that of tiny:latest, as anybody could serve it who has seen it
  schema1             the manifest is a signed one of Docker's schema 1, whose digest leaves out the signatures
  huge-manifest       the manifest does not end (16 MiB of it, then the connection closes)
  redirect            blobs are redirected to another host (https://registry.test), as content networks do

Faults that go away, for clients that try again; these understand Range:
  cut, cut-large      every answer with the layer ends after 300000 (large: 3000000) bytes, the connection closes
  cut-norange         the same once, by a server that ignores Range
  reset-once          the first answer ends in the middle with a TCP reset
  stall-once          the first answer stops in the middle, the connection stays open
  busy                the first request of each thing is answered 429, with Retry-After: 1, for the layer with a date 2 seconds away
  twice-500           the first two requests of each manifest and blob are answered 500
  slow-N, slow-N-large  the layer comes in N seconds
  redirect-login      needs alice's credentials; blobs are redirected to https://content.test
  vault               needs a login whose password begins with xyzzy-; the layer comes in 4 seconds
  expiring, expiring-large   needs a token of https://fault.test/token, which any user gets; each is good for three requests
  oauth               needs a token that is given only for the identity token "refresh-me"
  greedy/...          sends clients to token.test's token server, and would like to see the token
  foreign             the layers are not here; their descriptors name https://content.test

  moody-NAME          does what GET /mood/moody-NAME?is=MOOD said last: a status (401, 503) for every request; "silent": no answer;
                      another word: the tag means another manifest, which says so; "fine"

GET /stats/NAME says what was asked for: {"requests": N, "served": bytes of the layer, "size": its size, "tokens": N,
"ranges": [first bytes], "logins": {host: [whether Authorization was there]}, "retries": [seconds between requests of one thing],
"connections": N, "peak": requests for the layer that were under way at once}.
"""

import base64
import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"


OUR_LOGIN = "Basic " + base64.b64encode(b"alice:secret").decode()


class Stats:
    """What was asked of one repository."""

    def __init__(self):
        self.requests, self.served, self.size, self.tokens, self.ranges, self.logins = 0, 0, 0, 0, [], {}
        self.asked = {}  # path: times
        self.uses = {}  # token: requests it is still good for
        self.connections, self.now, self.peak = set(), 0, 0

    def document(self):
        gaps = [round(b - a, 2) for times in self.asked.values() for a, b in zip(times, times[1:])]
        return {"requests": self.requests, "served": self.served, "size": self.size, "tokens": self.tokens, "ranges": self.ranges,
                "logins": self.logins, "retries": gaps, "connections": len(self.connections), "peak": self.peak}


class FaultRegistry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    images = ""
    seen = set()
    stats = {}
    seen_lock = threading.Lock()
    moods = {}

    @classmethod
    def configured(cls, state):
        cls.images = state + "/images/"
        return cls

    def log_message(self, *args):
        print(f"{self.headers.get('Host')} {args[0] % args[1:]}", file=sys.stderr, flush=True)

    @classmethod
    def layout(cls, fault):
        return ("debian", "12") if fault.endswith("-large") else ("tiny", "latest")

    @classmethod
    def image(cls, fault):
        """The manifest's bytes, and the digest of its biggest layer, the one that is tampered with."""
        name, tag = cls.layout(fault)
        with open(f"{cls.images}{name}/index.json", encoding="utf-8") as stream:
            entries = json.load(stream)["manifests"]
        entry = next(e for e in entries if e["annotations"]["org.opencontainers.image.ref.name"] == tag)
        content = cls.blob(fault, entry["digest"])
        victim = max(json.loads(content)["layers"], key=lambda layer: layer["size"])["digest"]
        return content, victim

    @classmethod
    def blob(cls, fault, digest):
        with open(f"{cls.images}{cls.layout(fault)[0]}/blobs/sha256/{digest.split(':')[1]}", "rb") as stream:
            return stream.read()

    def statistics(self, fault):
        with self.seen_lock:
            return self.stats.setdefault(fault, Stats())

    def do_POST(self):
        length = int(self.headers.get("Content-Length", "0"))
        form = urllib.parse.parse_qs(self.rfile.read(length).decode())
        good = form.get("grant_type") == ["refresh_token"] and form.get("refresh_token") == ["refresh-me"]
        fault = form.get("scope", [""])[0].partition(":")[2].partition(":")[0]
        if self.path != "/token" or not good:
            return self.error(401, "UNAUTHORIZED", True)
        return self.token(fault, "access_token")

    def token(self, fault, field):
        stats = self.statistics(fault)
        with self.seen_lock:
            stats.tokens += 1
            token = f"{fault}-{stats.tokens}"
            stats.uses[token] = 3 if fault.startswith("expiring") else 1000
        return self.reply(200, json.dumps({field: token}).encode(), "application/json", True)

    def let_in(self, fault):
        """Whether the request may go on; else the status and header to answer."""
        given = self.headers.get("Authorization")
        if fault == "redirect-login" and self.headers.get("Host") == "fault.test":
            return given == OUR_LOGIN, 'Basic realm="fault.test"'
        if fault.startswith("expiring") or fault == "oauth":
            stats = self.statistics(fault)
            token = (given or "").removeprefix("Bearer ")
            with self.seen_lock:
                stats.uses[token] = stats.uses.get(token, 0) - 1
                good = stats.uses[token] >= 0
            return good, f'Bearer realm="https://fault.test/token",service="fault.test",scope="repository:{fault}:pull"'
        if fault == "vault":
            kind, _, value = (given or "").partition(" ")
            good = kind == "Basic" and base64.b64decode(value).decode().partition(":")[2].startswith("xyzzy-")
            return good, 'Basic realm="fault.test"'
        if fault.startswith("greedy"):
            return False, 'Bearer realm="https://auth-token.test/token",service="token.test",scope="repository:tiny:pull"'
        return True, ""

    def do_GET(self):
        self.serve(body=True)

    def do_HEAD(self):
        self.serve(body=False)

    def serve(self, body):
        path = self.path.split("?")[0]
        if path in ("/v2", "/v2/"):
            return self.reply(200, b"{}", "application/json", body)
        if path.startswith("/stats/"):
            return self.reply(200, json.dumps(self.statistics(path[7:]).document()).encode(), "application/json", body)
        if path.startswith("/mood/"):
            self.moods[path[6:]] = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["is"][0]
            return self.reply(200, b"{}", "application/json", body)
        if path == "/token":
            scope = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("scope", [""])[0]
            return self.token(scope.partition(":")[2].partition(":")[0], "token")
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", path)
        if not match:
            return self.error(404, "NAME_UNKNOWN", body)
        fault, kind, reference = match.groups()
        stats = self.statistics(fault)
        with self.seen_lock:
            stats.requests += 1
            stats.connections.add(self.client_address)
            stats.logins.setdefault(self.headers.get("Host"), []).append("Authorization" in self.headers)
            times = stats.asked.setdefault(path, [])
            times.append(time.monotonic())
            count = len(times)
        good, challenge = self.let_in(fault)
        if not good:
            return self.error(401, "UNAUTHORIZED", body, {"WWW-Authenticate": challenge})
        mood = self.moods.get(fault, "fine")
        if mood == "silent":
            time.sleep(60)
        if mood.isdigit():
            return self.error(int(mood), "FAULT", body)
        if fault == "busy" and count == 1:
            after = formatdate(time.time() + 2, usegmt=True) if path.endswith(self.image(fault)[1]) else "1"
            return self.error(429, "TOOMANYREQUESTS", body, {"Retry-After": after})
        if fault == "twice-500" and count <= 2:
            return self.error(500, "FAULT", body)
        if kind == "manifests":
            return self.manifest(fault, body)
        if not re.fullmatch("sha256:[0-9a-f]{64}", reference):
            return self.error(404, "BLOB_UNKNOWN", body)
        try:
            content = self.blob(fault, reference)
        except OSError:
            return self.error(404, "BLOB_UNKNOWN", body)
        return self.layer(fault, reference, content, body)

    def manifest(self, fault, body):
        document = json.loads(self.image(fault)[0])
        if fault == "borrowed":
            content = self.image(fault)[0]
            return self.reply(200, content, MANIFEST, body, {})
        document["annotations"] = {"test.situla.repository": fault + self.moods.get(fault, "fine")}
        if fault == "foreign":
            for layer in document["layers"]:
                layer["urls"] = ["http://content.test/plain", "https://content.test/v2/good/blobs/" + layer["digest"]]
        content = json.dumps(document).encode()
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if fault.startswith("status-"):
            return self.error(int(fault[7:10]), "FAULT", body)
        if fault == "bad-manifest-digest":
            digest = "sha256:" + "0" * 64
        if fault in ("garbage-manifest", "empty-manifest"):
            content = b"<html>this is no manifest</html>" if fault == "garbage-manifest" else b"{}"
            digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if fault == "schema1":
            payload = {"schemaVersion": 1, "name": "schema1", "tag": "latest", "architecture": "amd64",
                       "fsLayers": [{"blobSum": self.image(fault)[1]}], "history": [{"v1Compatibility": "{}"}]}
            digest = "sha256:" + hashlib.sha256(json.dumps(payload).encode()).hexdigest()
            content = json.dumps({**payload, "signatures": [{"header": {}, "signature": "x", "protected": "y"}]}).encode()
            return self.reply(200, content, SCHEMA1, body, {"Docker-Content-Digest": digest})
        if fault == "huge-manifest":
            self.headers_for(200, 1 << 40, MANIFEST, {})
            self.close_connection = True
            if body:
                for _ in range(256):
                    self.wfile.write(b" " * 65536)
            return None
        return self.reply(200, content, MANIFEST, body, {"Docker-Content-Digest": digest})

    def layer(self, fault, digest, content, body):
        manifest, victim = self.image(fault)
        if fault.startswith("blob-status-"):
            return self.error(int(fault[12:]), "FAULT", body)
        if fault in ("layers-403", "borrowed") and digest in [layer["digest"] for layer in json.loads(manifest)["layers"]]:
            return self.error(403, "DENIED", body)
        if fault == "redirect":
            return self.reply(307, b"", "text/plain", body, {"Location": f"https://registry.test/v2/tiny/blobs/{digest}"})
        if fault == "flaky":
            with self.seen_lock:
                first = digest not in self.seen
                self.seen.symmetric_difference_update([digest])
            if first:
                return self.error(503, "UNAVAILABLE", body)
        if fault == "redirect-login" and self.headers.get("Host") == "fault.test":
            return self.reply(307, b"", "text/plain", body, {"Location": f"https://content.test/v2/{fault}/blobs/{digest}"})
        if fault == "foreign" and digest in [layer["digest"] for layer in json.loads(manifest)["layers"]]:
            return self.error(404, "BLOB_UNKNOWN", body)
        if digest == victim and body and re.match("cut|reset-once|stall-once|slow-|expiring|vault", fault):
            return self.tampered(fault, content)
        if digest != victim or not body:
            return self.reply(200, content, "application/octet-stream", body)
        half = len(content) // 2
        if fault == "bad-digest":
            content = content[:half] + bytes([content[half] ^ 0xff]) + content[half + 1:]
        elif fault == "wrong-size":
            content += b"\0" * 512
        elif fault == "short":
            content = content[:half]
        elif fault in ("truncated", "reset", "stall", "slow"):
            self.headers_for(200, len(content), "application/octet-stream", {})
            return self.interrupted(fault, content, half)
        return self.reply(200, content, "application/octet-stream", body)

    def tampered(self, fault, content):
        """The layer, by Range, and what the repository's name says about this answer."""
        stats = self.statistics(fault)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), int(asked[2])) if asked and fault != "cut-norange" else (0, len(content) - 1)
        part = content[first:last + 1]
        with self.seen_lock:
            stats.now += 1
            stats.peak = max(stats.peak, stats.now)
            stats.size = len(content)
            stats.ranges.append(first)
            again = len(stats.ranges) > 1
        limit = len(part)
        if fault in ("cut", "cut-large"):
            limit = 3000000 if fault == "cut-large" else 300000
        elif not again and (fault == "cut-norange" or fault.endswith("-once")):
            limit = len(part) // 2
        more = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if len(part) < len(content) else {}
        self.headers_for(206 if more else 200, len(part), "application/octet-stream", more)
        seconds = int(fault.split("-")[1]) if fault.startswith("slow-") else 4 if fault == "vault" else 0
        try:
            for start in range(0, min(limit, len(part)), 1 << 16):
                piece = part[start:min(start + (1 << 16), limit)]
                self.wfile.write(piece)
                with self.seen_lock:
                    stats.served += len(piece)
                time.sleep(seconds * len(piece) / len(content))
        finally:
            with self.seen_lock:
                stats.now -= 1
        if limit < len(part):
            self.close_connection = True
            if fault == "stall-once":
                time.sleep(20)
            elif fault == "reset-once":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def interrupted(self, fault, content, half):
        self.close_connection = True
        if fault == "slow":
            step = max(1, len(content) // 300)
            for start in range(0, len(content), step):
                self.wfile.write(content[start:start + step])
                time.sleep(0.1)
            return
        self.wfile.write(content[:half])
        if fault == "stall":
            time.sleep(3600)
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # "truncated": leaving closes the connection with fewer bytes than announced.

    def error(self, status, code, body, more=None):
        text = json.dumps({"errors": [{"code": code, "message": f"answer {status} on purpose"}]}).encode()
        more = dict(more or {})
        if status == 401 and not more:
            more["WWW-Authenticate"] = 'Basic realm="fault.test"'
        if status == 429 and not more:
            more["Retry-After"] = "1"
        return self.reply(status, text, "application/json", body, more)

    def reply(self, status, content, kind, body, more=None):
        self.headers_for(status, len(content), kind, more or {})
        if body:
            self.wfile.write(content)

    def headers_for(self, status, length, kind, more):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
