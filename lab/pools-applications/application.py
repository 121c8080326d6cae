"""A small application for any server that speaks WSGI."""

import os


def application(environ, start_response):
    text = f"hello of {os.getpid()} at {environ['PATH_INFO']}\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]
