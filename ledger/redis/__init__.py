"""Ledgers and what surrounds them in Redis: streams, scripts, topologies, notifications."""
