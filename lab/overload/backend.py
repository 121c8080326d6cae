#!/usr/bin/env python3
"""A back end whose capacity is known: it sleeps instead of computing, so that two cores suffice.

    backend.py PORT SLOTS SERVICE_MS [degrades] [notices]

SLOTS requests at once take SERVICE_MS each, so it does SLOTS / SERVICE_MS * 1000 a second. More at
once make every one slower, as locks, caches and swapping do: with `degrades` the service time of n
at once grows by 1 + (n / SLOTS)^2, up to 20 times. `?ms=N` takes N in place of SERVICE_MS.

Whoever has begun goes on to the end although nobody waits for it any more, as php-fpm does; with
`notices` it ends with its connection. `/stats` tells what it did since the last look, and puts all
back as it was; `/stats?30:slots=10,60:slots=20` changes SLOTS 30 and 60 seconds after the next
request. `away_ms` is what replies take on the way, when their slot is free again already.
"""

import asyncio
import sys

BODY = b"thick walls.."
SLOWEST = 20


class Server:
    def __init__(self, slots, service_ms, words):
        self.usual = dict(slots=float(slots), away_ms=0.0)
        self.now = dict(self.usual)
        self.schedule, self.timers = [], []
        self.seconds = float(service_ms) / 1000
        self.degrades, self.notices = "degrades" in words, "notices" in words
        self.in_flight = 0
        self.figures = dict(most=0, served=0, started=0, wasted=0)

    def plan(self, text):
        """`30:slots=10,60:slots=20`: seconds, what, and how much."""
        for timer in self.timers:
            timer.cancel()
        self.now, self.timers = dict(self.usual), []
        changes = [change.replace("=", ":").split(":") for change in text.split(",") if change]
        self.schedule = [(float(seconds), name, float(value)) for seconds, name, value in changes]

    def begin(self):
        loop = asyncio.get_running_loop()
        for seconds, name, value in self.schedule:
            self.timers.append(loop.call_later(seconds, self.now.__setitem__, name, value))
        self.schedule = []
        self.in_flight += 1
        self.figures["started"] += 1
        # Who left at the same moment may not have been heard yet.
        loop.call_soon(self.count)

    def end(self):
        self.in_flight -= 1

    def count(self):
        self.figures["most"] = max(self.figures["most"], self.in_flight)

    def seconds_for(self, target):
        if b"ms=" in target:
            return float(target.split(b"ms=", 1)[1].split(b"&")[0]) / 1000
        load = self.in_flight / self.now["slots"]
        if self.degrades and load > 1:
            return self.seconds * min(SLOWEST, 1 + load * load)
        return self.seconds

    def told(self):
        lines = dict(in_flight=self.in_flight, **self.figures)
        self.figures = dict(most=self.in_flight, served=0, started=0, wasted=0)
        return "".join(f"{name} {value}\n" for name, value in lines.items()).encode()


def reply(body):
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Connection(asyncio.Protocol):
    def __init__(self, server):
        self.server = server
        self.input = b""
        self.gone = False
        # The request that works, and the reply that is on its way.
        self.timer = self.away = None

    def connection_made(self, transport):
        self.transport = transport

    def eof_received(self):
        self.leave()

    def connection_lost(self, _):
        self.leave()

    def leave(self):
        if self.gone:
            return
        self.gone = True
        if self.timer and self.server.notices:
            self.timer.cancel()
            self.timer = None
            self.server.end()

    def data_received(self, data):
        self.input += data
        if self.timer is None and self.away is None:
            self.next()

    def next(self):
        head, whole, rest = self.input.partition(b"\r\n\r\n")
        if not whole or self.gone:
            return
        self.input = rest
        target = head.split(b" ", 2)[1]
        path, _, query = target.partition(b"?")
        if path == b"/stats":
            self.transport.write(reply(self.server.told()))
            self.server.plan(query.decode())
            return self.next()
        self.server.begin()
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(self.server.seconds_for(target), self.done)

    def done(self):
        self.timer = None
        self.server.end()
        if self.gone:
            self.server.figures["wasted"] += 1
            return
        self.server.figures["served"] += 1
        away_ms = self.server.now["away_ms"]
        if away_ms == 0:
            return self.answer()
        self.away = asyncio.get_running_loop().call_later(away_ms / 1000, self.answer)

    def answer(self):
        self.away = None
        self.transport.write(reply(BODY))
        self.next()


async def main(port, *words):
    server = Server(*words[:2], words[2:])
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", int(port), backlog=4096, reuse_address=True)
    await listening.serve_forever()


asyncio.run(main(*sys.argv[1:]))
