"""Reads document pages into Markdown and JSON on small machines."""
