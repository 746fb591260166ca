"""A registry that misbehaves. The repository's name says how; the layers behind it are those of tiny:latest.

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
  schema1             the manifest is a signed one of Docker's schema 1, whose digest leaves out the signatures
  huge-manifest       the manifest does not end (16 MiB of it, then the connection closes)
  redirect            blobs are redirected to another host (https://registry.test), as content networks do
"""

import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"


class FaultRegistry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    layout = ""
    seen = set()
    seen_lock = threading.Lock()

    @classmethod
    def configured(cls, state):
        cls.layout = state + "/images/tiny"
        return cls

    def log_message(self, *args):
        print(f"{self.headers.get('Host')} {args[0] % args[1:]}", file=sys.stderr, flush=True)

    @classmethod
    def tiny(cls):
        """tiny:latest's manifest bytes, and the digest of its biggest layer, the one that is tampered with."""
        with open(cls.layout + "/index.json", encoding="utf-8") as stream:
            entries = json.load(stream)["manifests"]
        entry = next(e for e in entries if e["annotations"]["org.opencontainers.image.ref.name"] == "latest")
        content = cls.blob(entry["digest"])
        victim = max(json.loads(content)["layers"], key=lambda layer: layer["size"])["digest"]
        return content, victim

    @classmethod
    def blob(cls, digest):
        with open(f"{cls.layout}/blobs/sha256/{digest.split(':')[1]}", "rb") as stream:
            return stream.read()

    def do_GET(self):
        self.serve(body=True)

    def do_HEAD(self):
        self.serve(body=False)

    def serve(self, body):
        path = self.path.split("?")[0]
        if path in ("/v2", "/v2/"):
            return self.reply(200, b"{}", "application/json", body)
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", path)
        if not match:
            return self.error(404, "NAME_UNKNOWN", body)
        fault, kind, reference = match.groups()
        if kind == "manifests":
            return self.manifest(fault, body)
        if not re.fullmatch("sha256:[0-9a-f]{64}", reference):
            return self.error(404, "BLOB_UNKNOWN", body)
        try:
            content = self.blob(reference)
        except OSError:
            return self.error(404, "BLOB_UNKNOWN", body)
        return self.layer(fault, reference, content, body)

    def manifest(self, fault, body):
        document = json.loads(self.tiny()[0])
        document["annotations"] = {"test.situla.repository": fault}
        content = json.dumps(document).encode()
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if fault.startswith("status-"):
            return self.error(int(fault[7:]), "FAULT", body)
        if fault == "bad-manifest-digest":
            digest = "sha256:" + "0" * 64
        if fault in ("garbage-manifest", "empty-manifest"):
            content = b"<html>this is no manifest</html>" if fault == "garbage-manifest" else b"{}"
            digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if fault == "schema1":
            payload = {"schemaVersion": 1, "name": "schema1", "tag": "latest", "architecture": "amd64",
                       "fsLayers": [{"blobSum": self.tiny()[1]}], "history": [{"v1Compatibility": "{}"}]}
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
        _, victim = self.tiny()
        if fault.startswith("blob-status-"):
            return self.error(int(fault[12:]), "FAULT", body)
        if fault == "redirect":
            return self.reply(307, b"", "text/plain", body, {"Location": f"https://registry.test/v2/tiny/blobs/{digest}"})
        if fault == "flaky":
            with self.seen_lock:
                first = digest not in self.seen
                self.seen.symmetric_difference_update([digest])
            if first:
                return self.error(503, "UNAVAILABLE", body)
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

    def error(self, status, code, body):
        text = json.dumps({"errors": [{"code": code, "message": f"answer {status} on purpose"}]}).encode()
        more = {}
        if status == 401:
            more["WWW-Authenticate"] = 'Basic realm="fault.test"'
        if status == 429:
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
