"""One caller's feed: its socket, its comparisons with the host's list, and how arrivals reach the ledger."""
