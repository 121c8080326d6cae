#!/usr/bin/env python3
"""Stands between a gateway and its database, and gives it the trouble that a file names.

    forwarder.py PORT TO MODE_FILE

Modes: `pass`, `refuse` (connections are closed at once), `late` (each piece comes ten seconds later), `stall` (nothing
comes any more), `cut` (connections end after 100 further bytes of answers).
"""

import asyncio
import sys
from pathlib import Path

LATE_S = 10
CUT_BYTES = 100
LOOK_S = 0.05


async def main(port, to, mode_file):
    def mode():
        try:
            return Path(mode_file).read_text().strip()
        except OSError:
            return "pass"

    async def carry(reader, writer, is_answer):
        left = CUT_BYTES
        while data := await reader.read(65536):
            while mode() == "stall":
                await asyncio.sleep(LOOK_S)
            if is_answer and mode() == "late":
                await asyncio.sleep(LATE_S)
            if mode() == "refuse":
                break
            if is_answer and mode() == "cut":
                data, left = data[:left], left - len(data)
            writer.write(data)
            await writer.drain()
            if left <= 0:
                break
        writer.close()

    async def serve(reader, writer):
        if mode() == "refuse":
            return writer.close()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", to)
            await asyncio.gather(carry(reader, back, False), carry(there, writer, True))
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
