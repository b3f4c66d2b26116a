"""What an operator and a tool server say about tools."""
