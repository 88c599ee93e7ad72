"""What hostile clients and a hostile host can do to a front, and what ordinary callers notice of it."""
