"""The other side cannot be reached, or the connection broke."""

from __future__ import annotations

from flightlog.analyze.diagnosis.base import Source
from flightlog.analyze.diagnosis.matchers import Clues, errno, named, raised, reports, says, status

rule = Clues(
    raised(
        4.5,
        "ConnectionRefusedError gaierror herror NewConnectionError NameResolutionError ConnectTimeout",
        "ConnectTimeoutError ConnectError ConnectException UnknownHostException",
        "NoRouteToHostException EndpointConnectionError ClientConnectorError ClientConnectorDNSError",
        "ProxyError SSLError SSLCertVerificationError SSLEOFError SSLZeroReturnError",
        "SSLHandshakeException CertificateError ServerDisconnectedError RemoteDisconnected",
        "ClientConnectionError ClientOSError ConnectionClosedError ConnectionClosed",
        "ConnectionClosedException APIConnectionError ServiceUnavailable ServiceRequestError",
        "ServiceResponseError TransportError NetworkError DistNetworkError RemoteProtocolError",
        "NoConnection ServerNotFoundError NoValidConnectionsError ConnectionLost",
        "NetworkConnectionError HTTPClientError BadGateway TooManyRequests RateLimitError SlowDown",
        "ClosedChannelException ClientPayloadError CondaHTTPError CondaSSLError IOLoopClosed",
        "ServiceUnavailableError OfflineModeIsEnabled ConnectionDoesNotExistError ReadError",
        "ConnectTimeoutException",
    ),
    raised(
        3.5,
        "ConnectionError ConnectionResetError ConnectionAbortedError MaxRetryError ProtocolError",
        "IncompleteRead ConnectionException ChunkedEncodingError URLError",
        "SocketException CommClosedError RetryError ClientDisconnected",
        unless="no such table|locked|syntax|disk",
    ),
    raised(2, "BrokenPipeError"),
    raised(
        4.5,
        "TimeoutError timeout OSError Timeout TimeoutException CommClosedError SocketTimeoutException",
        saying=(
            "(?<!reached, )connection timed out|errno 110"
            r"|(?:trying|failed|unable|time(?:d)? ?out|while|attempt\w*) (?:to )?connect"
            r"|connect(?:ion)? tim(?:ed|e)|in connect\b|handshake"
        ),
    ),
    errno("ECONNREFUSED", 4.5),
    errno("ECONNRESET", 3.5),
    errno("EHOSTUNREACH", 5),
    errno("ENETUNREACH", 5),
    errno("ETIMEDOUT", 4.5),
    errno("EADDRINUSE", 3.5),
    errno("EPIPE", 1.5),
    says(
        5,
        "could not resolve (?:host|proxy|hostname)|name or service not known",
        "temporary failure in name resolution|nodename nor servname",
        "getaddrinfo (?:failed|ENOTFOUND|EAI_AGAIN)|failed to resolve(?! reference)|no such host"
        "|unknown host",
        "name resolution|server not found",
        "host(?:name)? .{0,60}(?:could not be resolved|not resolvable|cannot be resolved)",
        "dns (?:lookup|resolution|error|failure)",
    ),
    says(
        3.5,
        "connection (?:was |is |has been |attempt )?(?:refused|reset|aborted|closed|lost|broken"
        "|dropped|failed|timed? ?out|terminated|error|could not be established|unexpectedly)",
        "(?:connect|connection) time-?out|failed to (?:establish (?:a )?(?:new )?connection|connect)",
        "(?:cannot|could not|couldn't|unable to|can't) (?:connect|reach|establish)|failed connecting",
        "error connecting|connect(?:ing)? to .{0,80}(?:failed|timed out|refused)|lost connection",
        "server closed the connection|unexpectedly closed the connection|no connection could be made",
        "not reachable|unreachable",
        unless=r"to (?:the )?(?:display|X server)|could not connect to display",
    ),
    says(
        4.5,
        "SSL(?:Error|:)? ?.{0,40}(?:CERTIFICATE_VERIFY_FAILED|handshake|EOF occurred|WRONG_VERSION_NUMBER)",
        r"certificate verif\w+ failed|SSL certificate problem|unable to get local issuer certificate",
        "certificate has expired|certificate signed by unknown authority|(?:TLS|SSL)[ _]?(?:handshake"
        "|connection)|x509:",
        r"_handshake(?:\(\))? failed",
        "unexpected EOF while reading from|early EOF|remote end hung up|RPC failed; (?:curl|HTTP)",
        "fetch-pack: unexpected disconnect",
        r"cancell?ed while waiting for connection|ports? (?:is|are) (?:not available|already (?:allocated"
        r"|in use))",
        r"attempt was made to access a socket|\blisten tcp\b.{0,60}\bbind\b",
    ),
    says(
        3.5,
        "remote end closed connection|max retries exceeded|retries exhausted",
        "network (?:is )?(?:unreachable|error|failure|down|timeout)|no route to host",
        "connection aborted|broken pipe|bytes read, .{0,30}more expected|transfer closed with",
        "ssh: connect to host|kex_exchange_identification|client_loop: send disconnect",
        "closed by remote host|proxy (?:error|connection)|cannot connect to proxy",
        "tunnel connection failed",
        r"\b(?:sftp|ssh|ftp|https?|grpc|rpc|tls)\b.{0,20}: (?:unexpected )?EOF\b",
        r"\b(?:data|bandwidth|transfer|LFS)\b.{0,20}\b(?:quota|budget|allowance)\b",
    ),
    says(
        3.5,
        r"\b(?:too many requests|rate limit(?:ed| exceeded| reached)?"
        "|service (?:temporarily )?unavailable|bad gateway|slow ?down|throttl(?:ed|ing)"
        "|temporarily unavailable|server (?:is )?overloaded|quota exceeded for .{0,40}(?:requests"
        "|metric))",
        unless="resource temporarily unavailable",
    ),
    reports(
        4,
        r"\bUNAVAILABLE\b: |StatusCode\.UNAVAILABLE|status = UNAVAILABLE",
        "failed to connect to all addresses|socketStartConnect|socketProgress|socketPollConnect",
        "Socket recv failed|Net/IB|NET/IB|ncclRemoteError|ncclSystemError",
        r"Call to (?:connect|recv|bind) .{0,40}failed|ibv_\w+ failed|transport retry counter exceeded",
        r"\bOFI [\w() ]{1,40} failed|\bfi_\w+ (?:domain )?failed|libfabric:\w+:.{0,80}(?:[Ee]rror|[Ff]ail)",
        r"\bPSM[23]?\b.{0,60}(?:unable|can't|[Ff]ail|[Ee]rror)|network link is",
        r"IBV_WC_RETRY_EXC_ERR|UCX +(?:ERROR|Fatal)|transport error|connectFullMesh|\bmlx5_\w+",
        "NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|REQUEST_TIME_TOO_SKEWED",
    ),
    says(
        3,
        "unhandled system error|connection closed by (?:remote )?peer|connection was forcibly closed",
        "address already in use",
    ),
    reports(3.5, r"cannot open (?:the connection to|URL) ['\"]?<url>", source=Source.exception),
    status(429, 500, 502, 503, 520, 522, 523, weight=3.5),
    named(
        3, "Connect(?:ion|or|Error|Exception)|Network|Socket|DNS|Unreachable|RateLimit|Throttl|Proxy|SSL|TLS"
    ),
    named(0.95, "HTTP|Http|Remote|Request"),
    says(
        1.3,
        r"\b(?:connection|socket|network|remote (?:host|server)|endpoint)\b.{0,40}\b(?:fail\w*|error|closed"
        r"|lost|broken|down)\b",
    ),
    says(
        4.5,
        "unable to resolve|unable to contact slurm|communication (?:connection )?failure"
        "|contact(?:ing)? (?:the )?(?:slurm|pbs|licen[cs]e) (?:controller|server|manager|daemon)",
        unless=(
            r"resolve.{0,40}\b(?:dependenc|service for|module|reference|symbol|type|class|path|import"
            r"|package|version|conflict|merge|plugin|bean)"
        ),
    ),
    says(
        4, "no internet|no network connection|(?:is|are) offline|check your (?:internet|network) connection"
    ),
    reports(4.5, r"curl: \((?:5|6|7|35|52|55|56|60|92)\)"),
    raised(
        4,
        "OperationalError InterfaceError",
        saying="connect|could not translate host|gone away|lost connection|server closed",
    ),
    suggest=[
        "Try it from where the task ran: `curl -v URL`, `nc -vz HOST PORT`, `getent hosts HOST`. Compute "
        "nodes often have no way out.",
        "If it works by now, it was passing: retry with a growing pause.",
        "If many tasks fail at once, the service is down or refuses so many: fetch once beforehand, or ask "
        "less at a time.",
    ],
)
