"""The stdio server's own settings, apart from `ops.parts`, which imports every part: this is on the way to a start."""

from __future__ import annotations

from pathlib import Path

from mcp_front.settings import FrontSettings
from ops.settings import Settings


def stdio_settings(settings: Settings) -> FrontSettings:
    """What the stdio server takes; it starts without an API URL, too."""
    return FrontSettings(
        transport="stdio",
        api_url=settings.api_url,
        api_public_url=settings.api_public_url,
        default_domain=settings.default_domain,
        directory=expanded(settings.directory),
        download_dir=expanded(settings.download_dir),
        upload_dir=expanded(settings.upload_dir),
        wait_default_s=settings.wait_default_s,
        wait_max_s=settings.wait_max_s,
        activate_s=activate_s(settings),
    )


def activate_s(settings: Settings) -> float:
    """How often a caller is reported active, in seconds: no feed is to stop while somebody waits."""
    return min(FrontSettings().activate_s, settings.idle_minutes * 60 / 4)


def expanded(text: str | None) -> Path | None:
    """The path, ``~`` resolved."""
    return None if text is None else Path(text).expanduser()
