"""What opens candidates with PyTorch."""
