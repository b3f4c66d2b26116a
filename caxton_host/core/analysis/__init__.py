"""Analysis of grants: verdicts explained, rejudged, checked and suggested."""
