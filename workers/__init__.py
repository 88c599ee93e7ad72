"""Jobs that nobody waits for: reconcile sweeps, orphaned drafts, unknown send outcomes, retention."""
