"""What goes on beside suites that wait for most of their time."""
import concurrent.futures
import threading
import time

from runner.catch import begin_catch, begin_fuzz, missing_for_asan
from runner.core import IDLY, BuildError, hurry


class Beside(threading.Thread):
    """Later suites are built and begun, and clang-tidy runs, with what processor time the labs leave."""

    def __init__(self, context, tidy, later, asan):
        super().__init__()
        self.context, self.tidy, self.later, self.asan, self.over = context, tidy, later, asan, threading.Event()
        self.start()

    def run(self):
        def idly():
            return not self.over.is_set()
        begun = []
        try:
            missing = missing_for_asan()
            if "asan" in self.later and not missing:
                begun += [done for *_, done in begin_catch(self.context, "asan", self.asan, idly)]
            if "fuzz" in self.later and not missing:
                begun += [done for *_, done in begin_fuzz(self.context, idly)]
            while idly() and concurrent.futures.wait(begun, timeout=1).not_done:
                pass
            if "tidy" in self.later:
                self.tidy.run(self.context, idly, IDLY)
        except BuildError:
            pass  # the suite that needs it meets it again
        except RuntimeError:  # nothing can be begun any more
            if not self.over.is_set():
                raise

    def abandon(self):
        """Ends at once, with what it has begun."""
        self.over.set()
        while self.is_alive():
            self.context.terminate()
            self.join(1)

    def end(self):
        """What it has begun goes on like everything else; beside other load it would idly never end."""
        self.over.set()
        while self.is_alive():
            hurry()
            self.join(1)
        time.sleep(0.2)  # what was just being started idly is there by then
        hurry()
