"""Metrics and logs, for every part alike. Labels are bounded; no caller, key, token or body ever appears in either."""
