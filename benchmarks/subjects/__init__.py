"""What is measured: each keeps conversations, in its own way, behind the same few operations."""
