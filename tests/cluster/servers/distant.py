"""registry.test as from far away: every byte comes 10 ms later in each direction, and a connection takes a round trip to begin."""
import socket
import threading
import time
from queue import SimpleQueue

ONE_WAY = 0.010  # seconds
PIECE = 1 << 18


def carry(source, target, late):
    """Until the source ends: what comes is sent on when it is old enough. late: of the first byte, seconds."""
    pieces = SimpleQueue()

    def send():
        while True:
            due, piece = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not piece:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(piece)
            except OSError:
                return

    threading.Thread(target=send, daemon=True).start()
    first = time.monotonic() + late
    piece = b"-"
    while piece:
        try:
            piece = source.recv(PIECE)
        except OSError:
            piece = b""
        pieces.put((max(time.monotonic() + ONE_WAY, first), piece))


def connect(client, upstream):
    with client, socket.create_connection(upstream) as server:
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The client believes that it is connected: what it says first has to wait for that as well.
        there = threading.Thread(target=carry, args=(client, server, 3 * ONE_WAY), daemon=True)
        there.start()
        carry(server, client, 0)
        there.join()
        time.sleep(2 * ONE_WAY)  # for what is under way


class Distant:
    """As the other servers: serve_forever()."""

    def __init__(self, address, upstream):
        self.listener = socket.create_server((address, 443), backlog=64)
        self.upstream = upstream

    def serve_forever(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=connect, args=(client, self.upstream), daemon=True).start()
