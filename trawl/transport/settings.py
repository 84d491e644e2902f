"""What a user may set about the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.transport.bind_address import BindAddress

__all__ = ["TransportSettings"]


class TransportSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Time limits, sizes, TLS, compression."""

    download_timeout: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="The longest that one request may take, from connecting to the last byte; meta "
            "`download_timeout` goes before it.",
        ),
    ] = 180.0
    download_connect_timeout: Annotated[
        float, Meta(gt=0, title="s", description="The longest that a connection, with its TLS handshake, may take.")
    ] = 30.0
    download_read_timeout: Annotated[
        float, Meta(gt=0, title="s", description="The longest silence of a server that owes us bytes, or takes none.")
    ] = 60.0
    download_maxsize: Annotated[
        int,
        Meta(
            ge=0,
            title="bytes",
            description="The largest body, as sent and once decompressed; a larger one is an error. 0 means no limit; "
            "meta `download_maxsize` goes before it.",
        ),
    ] = 1_073_741_824
    download_warnsize: Annotated[
        int,
        Meta(
            ge=0,
            title="bytes",
            description="A larger body is logged; 0 means none is. Meta `download_warnsize` goes before it.",
        ),
    ] = 33_554_432
    download_fail_on_dataloss: Annotated[
        bool,
        Meta(
            description="A body that ends early is an error; if False it comes as it is with the flag `dataloss`. Meta "
            "`download_fail_on_dataloss` goes before it."
        ),
    ] = True
    download_verify_certificates: Annotated[
        bool,
        Meta(description="Refuse a server whose certificate is expired, another host's, or signed by nobody known."),
    ] = True
    allow_private_addresses: Annotated[
        bool | None,
        Meta(
            description="Whether hosts at loopback, private and link-local addresses are fetched, and at others that "
            "are not public; None: if a start URL is there itself."
        ),
    ] = None
    download_keepalive_timeout: Annotated[
        float, Meta(ge=0, title="s", description="How long an idle connection is kept for the next request.")
    ] = 30.0
    download_bind_address: Annotated[
        str | tuple[str, int] | None,
        Meta(
            description="The address of this machine that connections come from, those to proxies too, or that and a "
            "port; meta `bindaddress` goes before it. None: the system chooses. Names are looked up as ever."
        ),
    ] = None
    dns_resolver: Annotated[
        Literal["system", "dnspython"],
        Meta(
            description="Who looks names up: the system, in threads, each name being remembered for a minute; or "
            "dnspython, without threads, which remembers as long as name servers say. It needs the `dns` extra."
        ),
    ] = "system"
    http2_enabled: Annotated[
        bool,
        Meta(
            description="Offer HTTP/2 to `https` servers; needs the `http2` extra. HTTP/1.1 takes less of our own time."
        ),
    ] = False
    compression_enabled: Annotated[
        bool, Meta(description="Ask for compressed bodies and decompress them; if False they come as they were sent.")
    ] = True
    warc_file: Annotated[
        str,
        Meta(
            description="Write all traffic to WARC files: `crawl.warc.gz` makes `crawl-00001.warc.gz` and so on, and "
            "touches none that is there. Empty: none. It needs the `warc` extra."
        ),
    ] = ""
    warc_max_bytes: Annotated[
        int, Meta(gt=0, title="bytes", description="The size at which the next WARC file is begun.")
    ] = 1_000_000_000

    def __post_init__(self) -> None:
        """See that the address to come from is one."""
        if self.download_bind_address is not None:
            try:
                BindAddress.of(self.download_bind_address)
            except ValueError as error:
                raise SettingsError(f"DOWNLOAD_BIND_ADDRESS must be {error}", "DOWNLOAD_BIND_ADDRESS") from error

    @property
    def bind_address(self) -> BindAddress | None:
        """Where connections come from; None: the system chooses."""
        return None if self.download_bind_address is None else BindAddress.of(self.download_bind_address)
