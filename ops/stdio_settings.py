"""The stdio server's own settings. Importing `ops.parts`, and with it every part, would slow its start."""

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
    """How often a caller is reported active, in seconds. A feed must not stop while a wait is held."""
    return min(FrontSettings().activate_s, settings.idle_minutes * 60 / 4)


def expanded(text: str | None) -> Path | None:
    """The path, ``~`` resolved."""
    return None if text is None else Path(text).expanduser()
