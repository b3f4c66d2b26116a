"""Texts and values: paths, patterns, templates, redaction."""
