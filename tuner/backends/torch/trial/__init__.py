"""One trial: its inputs, its epochs, its scores, its checkpoint."""
