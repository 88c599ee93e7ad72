"""In processes of their own: this one's standard output belongs to pytest."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = "import os, sys\nfrom mcp_front.stdio.file_descriptors import claim\n"


def run(code: str, *, given: bytes = b"", **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options are subprocess's own
        [sys.executable, "-c", PRELUDE + code], input=given, capture_output=True, timeout=30, check=True, **options
    )


def test_whatever_prints_lands_in_standard_error() -> None:
    ended = run(
        "wire = claim()\n"
        "print('from python')\n"
        "sys.stdout.flush()\n"
        "os.write(1, b'from a library\\n')\n"
        "os.system('echo from a child')\n"
        "os.write(wire.write_fd, b'protocol\\n')\n"
    )
    assert ended.stdout == b"protocol\n"
    assert ended.stderr.split(b"\n")[:3] == [b"from python", b"from a library", b"from a child"]


def test_what_was_printed_before_is_not_kept_for_later() -> None:
    ended = run("sys.stdout.write('early')\nwire = claim()\nos.write(wire.write_fd, b'protocol')\n")
    assert ended.stdout == b"earlyprotocol"


def test_nobody_else_reads_what_the_client_says() -> None:
    ended = run(
        "wire = claim()\nassert sys.stdin.read() == ''\nos.write(wire.write_fd, os.read(wire.read_fd, 100))\n",
        given=b"for the server",
    )
    assert ended.stdout == b"for the server"


def test_children_do_not_hold_the_pipes() -> None:
    ended = run(
        "wire = claim()\n"
        "inherited = [os.get_inheritable(fd) for fd in (wire.read_fd, wire.write_fd)]\n"
        "os.write(wire.write_fd, repr(inherited).encode())\n"
        "wire.close()\n"
    )
    assert ended.stdout == b"[False, False]"


def test_it_works_without_a_standard_error() -> None:
    shell = f"exec {sys.executable} -c \"{PRELUDE}wire = claim(); print('lost'); os.write(wire.write_fd, b'ok')\" 2>&-"
    ended = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, timeout=30, check=True)
    assert ended.stdout == b"ok"


def test_it_brings_next_to_nothing_along() -> None:
    ended = run("wire = claim()\nos.write(wire.write_fd, ' '.join(sys.modules).encode())\n")
    modules = ended.stdout.split()
    for heavy in (b"asyncio", b"typing", b"msgspec", b"pydantic", b"mcp"):
        assert heavy not in modules
