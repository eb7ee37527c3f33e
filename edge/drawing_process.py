"""The process in which documents are opened and pages drawn, so that a hostile one takes nothing else down.

It opens one document at a time and answers on its stdout what `drawer` asks on its stdin, in the words of `wire`. It
ends when its owner does, when a request takes too long, and when it would pass its memory limit.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mineru_edge.models.errors import InputError
from mineru_edge.runtime.private_memory import give_large_blocks_back, limit_data

from .intake import Source, in_words, open_here
from .wire import read_exactly, receive, send, send_sheet

GRACE_S = 5.0  # after which it ends itself, should its owner not have done so

Request = tuple[dict[str, Any], bytes]


def main() -> None:
    """Serve until stdin ends. argv: the bytes this process may take beside what it has after its imports."""
    memory_bytes = int(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # libraries that print must not speak into the answers
    os.dup2(quiet, 2)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy, should it be needed, then takes 30 MB less
    from . import pdf, pictures  # noqa: F401  # before the limit is set, which counts from here

    give_large_blocks_back()
    limit_data(memory_bytes)
    serve(iter(requests.get, None), answers)


def _listen(stdin: IO[bytes], requests: queue.SimpleQueue[Request]) -> None:
    """In a thread of its own, which PDFium does not hold up: the owner's end is seen in the middle of a page."""
    try:
        while True:
            message = receive(stdin)
            requests.put((message, read_exactly(stdin, message.get("bytes", 0))))
    finally:
        os._exit(0)


def serve(requests: Iterator[Request], answers: IO[bytes]) -> None:
    """Answer `requests` one after the other."""
    document: Source | None = None
    for message, body in requests:
        faulthandler.dump_traceback_later(message["limit_s"] + GRACE_S, exit=True, file=2)
        try:
            if "open" in message or "close" in message:
                if document is not None:
                    document.close()
                document = None
            if "close" in message:
                send(answers, {})
            elif "open" in message:
                path = message["path"]
                document = open_here(body if path is None else Path(path), message["open"], **message["options"])
                send(answers, {"pages": document.page_count})
            else:
                assert document is not None
                send_sheet(answers, *document.sheets([message["draw"]]))  # no name for it, which would keep it
        except InputError as error:
            send(answers, {"message": error.message, "hint": error.hint})
        except Exception as accident:
            send(answers, {"lost": in_words(accident) if isinstance(accident, MemoryError) else repr(accident)})
        finally:
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
