"""The admin page."""
