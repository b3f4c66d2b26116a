"""A run as one HTML file, which verifies itself in the browser of its reader."""
