#!/usr/bin/env python3
"""Stores one value in a memcached, and fails where it is not taken.

    fill.py PORT KEY VALUE
"""

import socket
import sys

port, key, value = sys.argv[1:]
with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as connection:
    connection.sendall(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode())
    sys.exit(connection.recv(100) != b"STORED\r\n")
