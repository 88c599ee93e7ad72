"""Agents in four frameworks, each of which waits, answers and goes on."""
