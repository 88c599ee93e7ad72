"""Sealing what Redis keeps of credentials and addresses: AES-256-GCM, bound to the caller it belongs to.

A sealed value is one version byte, a random nonce of 12 bytes, and the ciphertext with its tag. The associated data is
what the value is bound to: moved to another caller, it does not open.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
"""AES-256."""
_NONCE_BYTES = 12
"""What GCM is made for. Random nonces are safe for 2^32 seals per key (NIST SP 800-38D): 100 a second for a year."""
_VERSION = b"\x01"
"""The layout of a sealed value, so that it can change while old values are still stored."""


class SealKeyInvalid(ValueError):
    """FMSG_SEAL_KEY is not a comma-separated list of base64 keys of 32 bytes each. Make one: fmsg-mcpd keygen"""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"FMSG_SEAL_KEY: {reason}. It takes base64 of {KEY_BYTES} bytes, several separated by commas "
            "(the first seals, all open). Make one with: fmsg-mcpd keygen"
        )


class SealBroken(Exception):
    """A sealed value does not open: sealed under a key that is gone, bound to something else, or damaged."""


class SealKeys:
    """The keys of one deployment, newest first. Never shown."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise SealKeyInvalid("no key given")
        for number, key in enumerate(keys, 1):
            if len(key) != KEY_BYTES:
                raise SealKeyInvalid(f"key {number} has {len(key)} bytes instead of {KEY_BYTES}")
        self._keys = tuple(keys)
        self._ciphers = tuple(AESGCM(key) for key in keys)

    def __repr__(self) -> str:
        return f"SealKeys({len(self._ciphers)})"

    @classmethod
    def parse(cls, text: str) -> SealKeys:
        """The keys in the value of FMSG_SEAL_KEY. Raises `SealKeyInvalid`, which never shows any of it."""
        parts = [part.strip() for part in text.split(",")]
        if not any(parts):
            raise SealKeyInvalid("it is empty")
        return cls([_decode(part, number) for number, part in enumerate(parts, 1) if part])

    def derived(self, label: str) -> SealKeys:
        """Keys for one purpose, made from these (HKDF-SHA256): what is sealed for one does not open for another."""
        info = f"fmsg-mcpd {label}".encode()
        return SealKeys([HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key) for key in self._keys])

    @staticmethod
    def generate() -> str:
        """A new key as text."""
        return base64.b64encode(os.urandom(KEY_BYTES)).decode()

    def seal(self, plain: bytes, *, bound_to: bytes) -> bytes:
        """Seal with the first key."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._ciphers[0].encrypt(nonce, plain, bound_to)

    def open(self, sealed: bytes, *, bound_to: bytes) -> bytes:
        """Open with whichever key fits. Raises `SealBroken`."""
        if sealed[:1] == _VERSION:
            nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
            for cipher in self._ciphers:
                try:
                    return cipher.decrypt(nonce, ciphertext, bound_to)
                except (InvalidTag, ValueError):
                    continue
        raise SealBroken(
            "a sealed value does not open with any key of FMSG_SEAL_KEY; it is made anew when next asked for"
        )


def _decode(part: str, number: int) -> bytes:
    try:
        return base64.b64decode(part, validate=True)
    except (binascii.Error, ValueError):
        raise SealKeyInvalid(f"key {number} is not base64") from None
