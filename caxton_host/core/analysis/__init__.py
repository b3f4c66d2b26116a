"""What grants say of calls that were made, or could be."""
