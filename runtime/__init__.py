"""One image and one prompt become tokens, within a memory plan. Knows nothing of pages and files."""
