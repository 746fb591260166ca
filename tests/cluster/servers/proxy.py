"""An HTTP proxy that counts. Which proxy it is, is said by the login: https_proxy=http://NAME:x@proxy.test:3128

  NAME       what happens
  hold-N     the first connection that carries more than a megabyte towards the client stops there for N seconds, once
  refuse     every CONNECT is answered 403
  others     nothing

GET http://proxy.test:3128/stats/NAME says what came through: {"connects": [host:port of each tunnel], "urls": [plain http],
"held": whether a connection has been stopped}.
Without a login the name is "nobody".
"""

import base64
import http.client
import json
import select
import socket
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOLD_AFTER = 1 << 20


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stats = {}
    held = set()
    lock = threading.Lock()

    def log_message(self, *args):
        print(f"proxy: {args[0] % args[1:]}", file=sys.stderr, flush=True)

    def name(self):
        kind, _, value = self.headers.get("Proxy-Authorization", "").partition(" ")
        return base64.b64decode(value).decode().partition(":")[0] if kind == "Basic" else "nobody"

    def counted(self, name):
        return self.stats.setdefault(name, {"connects": [], "urls": [], "held": False})

    def do_CONNECT(self):
        name = self.name()
        with self.lock:
            self.counted(name)["connects"].append(self.path)
        if name == "refuse":
            return self.reply(403, b"refused on purpose")
        host, _, port = self.path.rpartition(":")
        try:
            far = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        except OSError:
            return self.reply(502, b"no connection")
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with far:
            self.tunnel(name, far)
        return None

    def tunnel(self, name, far):
        near, came = self.connection, 0
        while True:
            for source in select.select([near, far], [], [], 60)[0]:
                data = source.recv(65536)
                if not data:
                    return
                (far if source is near else near).sendall(data)
                came += len(data) if source is far else 0
            if name.startswith("hold-") and came > HOLD_AFTER:
                with self.lock:
                    first = name not in self.held
                    self.held.add(name)
                    self.counted(name)["held"] = True
                if first:
                    time.sleep(int(name[5:]))

    def do_GET(self):
        if self.path.startswith("/stats/"):
            with self.lock:
                return self.reply(200, json.dumps(self.counted(self.path[7:])).encode())
        url = urllib.parse.urlsplit(self.path)
        with self.lock:
            self.counted(self.name())["urls"].append(self.path)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("proxy-authorization", "proxy-connection", "connection")}
        far = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=30)
        far.request(self.command, url.path + ("?" + url.query if url.query else ""), headers=headers)
        answer = far.getresponse()
        return self.reply(answer.status, answer.read(), {k: v for k, v in answer.getheaders() if k.lower() not in ("content-length", "connection")})

    do_HEAD = do_GET

    def reply(self, status, content, headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        print(f"proxy: {sys.exc_info()[1]}", file=sys.stderr, flush=True)
