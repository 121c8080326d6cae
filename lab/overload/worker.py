#!/usr/bin/env python3
"""A back end that works for its replies: it computes for 4 ms, or writes 64 kB past all caches.

    worker.py PORT processors|disk
"""

import os
import mmap
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = b"thick walls.."
BUSY_SECONDS = 0.004
BLOCK_BYTES = 64 * 1024


def compute():
    began = time.thread_time()
    while time.thread_time() - began < BUSY_SECONDS:
        pass


def write():
    name = f"{os.environ['LAB_HOME']}/work.{threading.get_native_id()}"
    block = mmap.mmap(-1, BLOCK_BYTES)
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        os.write(file, block)
        os.fdatasync(file)
    finally:
        os.close(file)
        os.unlink(name)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        write() if sys.argv[2] == "disk" else compute()
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
