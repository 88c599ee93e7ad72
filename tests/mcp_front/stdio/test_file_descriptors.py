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
        "pipes = claim()\n"
        "print('from python')\n"
        "sys.stdout.flush()\n"
        "os.write(1, b'from a library\\n')\n"
        "os.system('echo from a child')\n"
        "os.write(pipes.write_fd, b'protocol\\n')\n"
    )
    assert ended.stdout == b"protocol\n"
    assert ended.stderr.split(b"\n")[:3] == [b"from python", b"from a library", b"from a child"]


def test_what_was_printed_before_is_not_kept_for_later() -> None:
    ended = run("sys.stdout.write('early')\npipes = claim()\nos.write(pipes.write_fd, b'protocol')\n")
    assert ended.stdout == b"earlyprotocol"


def test_nobody_else_reads_what_the_client_says() -> None:
    ended = run(
        "pipes = claim()\nassert sys.stdin.read() == ''\nos.write(pipes.write_fd, os.read(pipes.read_fd, 100))\n",
        given=b"for the server",
    )
    assert ended.stdout == b"for the server"


def test_children_do_not_hold_the_pipes() -> None:
    ended = run(
        "pipes = claim()\n"
        "inherited = [os.get_inheritable(fd) for fd in (pipes.read_fd, pipes.write_fd)]\n"
        "os.write(pipes.write_fd, repr(inherited).encode())\n"
        "pipes.close()\n"
    )
    assert ended.stdout == b"[False, False]"


def test_it_works_without_a_standard_error() -> None:
    shell = f"exec {sys.executable} -c \"{PRELUDE}own = claim(); print('lost'); os.write(own.write_fd, b'ok')\" 2>&-"
    ended = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, timeout=30, check=True)
    assert ended.stdout == b"ok"


def test_it_brings_next_to_nothing_along() -> None:
    ended = run("pipes = claim()\nos.write(pipes.write_fd, ' '.join(sys.modules).encode())\n")
    modules = ended.stdout.split()
    for heavy in (b"asyncio", b"typing", b"msgspec", b"pydantic", b"mcp"):
        assert heavy not in modules
