# SPDX-License-Identifier: Apache-2.0
"""The flags by which commands find a running controller."""

import argparse
import os
from pathlib import Path

from gradlane import controller_client
from gradlane.controller_client import (
    DEFAULT_ADDRESS,
    JOB_TYPE,
    SECONDS,
    TOKEN_VARIABLE,
    AddressError,
    Client,
    RequestError,
)

__all__ = ["DEFAULT_ADDRESS", "JOB_TYPE", "AddressError", "Client", "RequestError", "add_flags", "of_flags"]

_FLAGS = {"address": "--http", "token": "--token-file", "ca": "--ca", "certificate": "--cert"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Those by which commands find a running controller."""
    parser.add_argument(
        "--http", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"its API (default {DEFAULT_ADDRESS})"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"where a token for it is (default: what {TOKEN_VARIABLE} is)"
    )
    parser.add_argument("--ca", type=Path, metavar="FILE", help="over TLS: whom its certificate must come from (PEM)")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="over TLS: the certificate to show, if it asks (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the certificate's key (PEM)")


def of_flags(options: argparse.Namespace, seconds: float = SECONDS) -> Client:
    """The controller that the flags name. Raises AddressError that names the flag."""
    try:
        token = controller_client.read_token(options.token_file) if options.token_file else _token_of_environment()
        return Client(options.http, token, ca=options.ca, certificate=options.cert, key=options.key, seconds=seconds)
    except AddressError as problem:
        raise AddressError(_FLAGS[problem.key], problem.reason) from None


def _token_of_environment() -> str:
    return os.environ.get(TOKEN_VARIABLE, "").strip()
