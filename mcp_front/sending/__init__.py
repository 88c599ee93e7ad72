"""Sending as one act: draft, attachments, send, and what became of it."""
