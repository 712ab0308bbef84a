"""An importer of foreign logs."""

from pathlib import Path

import tot_lab as tl


class Chat:
    """Reads logs in which each line after the first is a thought."""

    @staticmethod
    def recognises(head):
        return head.startswith(b"ACME CHAT")

    @staticmethod
    def read(path):
        recorder = tl.Recorder("acme chat")
        node = None
        for line in Path(path).read_text().splitlines()[1:]:
            node = recorder.thought(line, node)
        recorder.end(line, node=node)
        return recorder.run
