"""Stands for torch.distributed: the processes meet at MASTER_ADDR and MASTER_PORT, where the first one adds what the others send."""

import os
import socket
import time

_rank, _size, _peers = 0, 1, []


def init_process_group(_backend=None):
    global _rank, _size
    _rank, _size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if _rank == 0:
        with socket.create_server(place, backlog=_size) as server:
            server.settimeout(30)
            while len(_peers) < _size - 1:
                _peers.append(server.accept()[0].makefile("rw"))
        return
    deadline = time.monotonic() + 30
    while True:
        try:
            _peers.append(socket.create_connection(place, timeout=30).makefile("rw"))
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def all_reduce(tensor):
    if _rank == 0:
        tensor.value += sum(float(peer.readline()) for peer in _peers)
    for peer in _peers:
        print(tensor.value, file=peer, flush=True)
    if _rank != 0:
        tensor.value = float(_peers[0].readline())


def get_rank():
    return _rank


def get_world_size():
    return _size


def destroy_process_group():
    for peer in _peers:
        peer.close()
