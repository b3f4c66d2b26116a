"""Texts and values: globs, paths, URLs, templates, redaction."""
