"""A caller whose feed this daemon runs."""

from __future__ import annotations

from daemon.feed.runner import FeedRunner


class Holding:
    """The feed of a caller and what the daemon remembers of it. Times are POSIX seconds."""

    __slots__ = ("asked_at_s", "epoch", "missing_since_s", "owned", "quiet_until_s", "runner", "said_live")

    def __init__(self, runner: FeedRunner, *, epoch: int, asked_at_s: float, quiet_until_s: float = 0.0) -> None:
        self.runner = runner
        """Its feed."""
        self.epoch = epoch
        """Of the lease, when we looked last: another one means that it changed hands or the store was emptied."""
        self.owned = True
        """Whether the lease was ours then. The reports of a caller are its owner's business."""
        self.asked_at_s = asked_at_s
        """When somebody asked for the caller, as far as we know."""
        self.missing_since_s: float | None = None
        """Since when its activation is gone."""
        self.quiet_until_s = quiet_until_s
        """Until then only good news is reported: the daemon it came from still listens."""
        self.said_live = False
        """Whether the last report said ``live``, or may have, as far as we know what the store holds."""
