"""A link between here and an S3 server: every request waits for the round trip, all answers share the bandwidth, and requests are
counted. One process of its own:

usage: proxy.py HOST:PORT ROUND_TRIP_MS MBIT_PER_S|0

Says the port that it listens on. A line on its standard input is answered with a line of JSON: requests by method and bytes of answers since the line before.
"""

import asyncio
import json
import sys
import time

METHODS = (b"GET ", b"HEAD", b"PUT ", b"POST", b"DELE")


class Link:
    def __init__(self, delay, rate):
        self.delay, self.rate = delay, rate
        self.free = 0.0
        self.reset()

    def reset(self):
        self.requests, self.sent = {}, 0

    def request(self, data):
        if data[:4] in METHODS:
            name = data[: data.index(b" ")].decode()
            self.requests[name] = self.requests.get(name, 0) + 1
            return True
        return False

    async def carry(self, length):
        self.sent += length
        if not self.rate:
            return
        now = time.monotonic()
        self.free = max(self.free, now) + length / self.rate
        if self.free > now:
            await asyncio.sleep(self.free - now)


async def up(link, reader, writer):
    while data := await reader.read(1 << 18):
        if link.request(data):
            await asyncio.sleep(link.delay)
        writer.write(data)
        await writer.drain()
    writer.close()


async def down(link, reader, writer):
    while data := await reader.read(1 << 16):
        await link.carry(len(data))
        writer.write(data)
        await writer.drain()
    writer.close()


async def main():
    there, delay, rate = sys.argv[1:]
    host, there = there.split(":")
    link = Link(float(delay) / 1e3, float(rate) * 1e6 / 8)

    async def serve(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(there))
            await asyncio.gather(up(link, reader, far_writer), down(link, far_reader, writer))
        except (ConnectionError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 18)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_event_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with server:
        while await lines.readline():
            print(json.dumps({"requests": link.requests, "bytes": link.sent}), flush=True)
            link.reset()


asyncio.run(main())
