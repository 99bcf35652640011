"""Caches of keys and values: rows appended, pages kept, fewer bits."""
