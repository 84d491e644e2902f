"""TLS by Trio's ``SSLStream`` (RFC 8446), as browsers do it: nobody's goodbye is waited for.

A server that closes without ``close_notify`` has ended its stream: most do so. A body that has a length or chunks shows
a cut all the same; one that ends with the connection does not (RFC 9112, 9.8).
"""

from __future__ import annotations

import os
import ssl

import certifi
import trio

from trawl.transport.http11.wire import StreamWire, peer_of

__all__ = ["client_context", "secured"]


def client_context(*, verifies: bool = True) -> ssl.SSLContext:
    """Return the context of a client that speaks HTTP/1.1.

    Servers are trusted that certifi trusts, or those of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` if one of them is set.

    Args:
        verifies: Whether certificates are looked at.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def secured(
    plain: trio.SocketStream, host: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> StreamWire:
    """Shake hands over ``plain`` and return the wire that is safe then. Closes ``plain`` if that fails or is cancelled.

    Args:
        plain: A fresh connection.
        host: Whose certificate is asked for.
        context: Decides what is trusted.
        session: An earlier session with this server, to go on with (RFC 8446, 2.2); must be of the same context.

    Raises:
        ssl.SSLError: The handshake failed or the certificate was refused.
        OSError: The connection broke.
    """
    peer = peer_of(plain.socket)
    secure = trio.SSLStream(plain, context, server_hostname=host.rstrip("."), https_compatible=True)
    try:
        if session is not None:
            secure.session = session
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        plain.socket.close()
        raise (error.__cause__ if isinstance(error.__cause__, OSError) else ConnectionResetError(str(error))) from error
    except BaseException:
        plain.socket.close()
        raise

    def is_quiet() -> bool:
        return plain.socket.fileno() >= 0 and not plain.socket.is_readable() and not secure.pending()

    return StreamWire(secure, close=plain.socket.close, is_quiet=is_quiet, peer=peer)
