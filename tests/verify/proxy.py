"""A small HTTP proxy with a password: prints its port, then each host that it was asked for.

``*.invalid`` hosts are this machine, so that only the proxy can reach them.
"""

import asyncio
import base64
from urllib.parse import urlsplit

NEEDED = b"basic " + base64.b64encode(b"user:secret")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way until they end."""
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: a tunnel, or one request passed on with the path alone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()
        return
    method, where, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    if b"proxy-authorization: " + NEEDED not in head.lower().replace(NEEDED.lower(), NEEDED):
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        return
    parts = urlsplit(f"//{where}" if method == "CONNECT" else where)
    print(parts.hostname, flush=True)  # noqa: T201 - the test reads it
    host = "127.0.0.1" if str(parts.hostname).endswith(".invalid") else parts.hostname
    upstream, to_upstream = await asyncio.open_connection(host, parts.port or 80)
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        lines = [
            line for line in head.split(b"\r\n") if not line.lower().startswith((b"proxy-", b"connection:"))
        ]
        lines[0] = f"{method} {parts.path or '/'} HTTP/1.1".encode()
        # One request a connection: the next one may be for another host.
        to_upstream.write(b"\r\n".join([lines[0], b"Connection: close", *lines[1:]]))
    await asyncio.gather(pump(reader, to_upstream), pump(upstream, writer))


async def main() -> None:
    """Listen on a free port until ended."""
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the test reads the port
    await server.serve_forever()


asyncio.run(main())
