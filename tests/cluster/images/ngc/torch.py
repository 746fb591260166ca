"""Stands for torch: as much of it as a program needs that adds a number over all processes."""

import glob
import os

__version__ = os.environ.get("PYTORCH_VERSION", "0")


class Tensor:
    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


def ones(_size, device="cpu"):
    if device == "cuda" and not cuda.is_available():
        raise RuntimeError("No CUDA GPUs are available")
    return Tensor(1.0)


class cuda:  # pylint: disable=invalid-name
    """The node's GPUs, as far as the job may see them."""

    @staticmethod
    def device_count():
        nodes = [path for path in glob.glob("/dev/nvidia[0-9]*")]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return len(nodes) if visible is None else min(len(nodes), len([word for word in visible.split(",") if word]))

    @staticmethod
    def is_available():
        return cuda.device_count() > 0

    @staticmethod
    def set_device(number):
        if number >= cuda.device_count():
            raise RuntimeError("CUDA error: invalid device ordinal")
