"""Puts the parts together: the command line, settings, and what an operator needs."""
