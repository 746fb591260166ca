"""The lab's small servers: the token server of token.test, a registry that misbehaves on demand, the same without TLS and with a
stranger's certificate, registry.test as from far away, and a proxy that counts.

    servers.py LABSTATE        (LABSTATE: build/lab, with tls/ and images/)

Each listens with TLS on port 443 of its own loopback address (see HOSTS in lib/places.py), and fault.test also on [::1]:5443;
plain.test is without TLS on port 80, proxy.test on port 3128.
"""

import os
import socket
import ssl
import sys
import threading
from http.server import ThreadingHTTPServer

from distant import Distant
from fault import FaultRegistry
from proxy import Proxy, ProxyServer
from token_server import TokenServer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address, handler, certificate=None, key=None, port=443):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), handler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if certificate:
            self.context.load_cert_chain(certificate, key)

    def finish_request(self, request, client_address):
        # The handshake happens in the connection's own thread: a client that stalls must not stop the others.
        request.settimeout(60)
        if not self.context:
            self.RequestHandlerClass(request, client_address, self)
            return
        try:
            with self.context.wrap_socket(request, server_side=True) as connection:
                self.RequestHandlerClass(connection, client_address, self)
        except (OSError, ssl.SSLError) as error:
            print(f"{self.server_address[0]}: {error}", file=sys.stderr, flush=True)


def main():
    state = sys.argv[1]
    tls = state + "/tls/"
    servers = [
        Server("127.0.0.5", TokenServer.configured(tls), tls + "server.crt", tls + "server.key"),
        Server("127.0.0.6", FaultRegistry.configured(state), tls + "server.crt", tls + "server.key"),
        Server("127.0.0.7", FaultRegistry.configured(state), tls + "stranger.crt", tls + "stranger.key"),
        Server("127.0.0.9", FaultRegistry.configured(state), tls + "server.crt", tls + "server.key"),
        Server("127.0.0.11", FaultRegistry.configured(state), port=80),
        ProxyServer(("127.0.0.10", 3128), Proxy),
        Distant("127.0.0.13", ("127.0.0.2", 443)),
    ]
    if os.path.exists("/proc/net/if_inet6"):
        servers.append(Server("::1", FaultRegistry.configured(state), tls + "server.crt", tls + "server.key", 5443))
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
