"""The TLS of gRPC, checked before anything else is done."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from serving.server import config_files
from serving.server.config_files import StartError

_log = logging.getLogger("serving")
_DAY = 86400
_SOON = 30 * _DAY


def server_credentials(path: str | os.PathLike[str]) -> Any:
    """Returns the `grpc.ServerCredentials` of an SSLConfig file.

    A key that others can read and a certificate that ends soon are warned of.

    Raises:
        StartError: If the file cannot be read, or key and certificate are none, or not a pair.
    """
    config = config_files.read_ssl(path)
    if os.stat(path).st_mode & 0o077:
        _log.warning("%s holds a private key and can be read by others: chmod 600", path)
    ends = _check_pair(path, config.server_cert, config.server_key)
    left = ends - time.time()
    if left < 0:
        raise StartError(f"{path}: server_cert ended {-left / _DAY:.0f} days ago")
    if left < _SOON:
        _log.warning("%s: server_cert ends in %.0f days", path, left / _DAY)
    if config.custom_ca:
        try:
            ssl.create_default_context(cadata=config.custom_ca)
        except ssl.SSLError as error:
            raise StartError(f"{path}: custom_ca holds no certificate: {error}") from error
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _check_pair(path, certificate, key):
    """Returns when a certificate ends, in seconds since 1970."""
    with tempfile.TemporaryDirectory() as folder:  # readable by its user alone
        files = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        for file, text in zip(files, (certificate, key)):
            file.write_text(text)
        try:
            # A password, so that nobody is asked for one at a terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password="")
            decoded = ssl._ssl._test_decode_cert(str(files[0]))  # the library has no other reader
        except (ssl.SSLError, OSError, ValueError) as error:
            raise StartError(
                f"{path}: server_key and server_cert are not a pair in PEM: {error}"
            ) from error
    return ssl.cert_time_to_seconds(decoded["notAfter"])
