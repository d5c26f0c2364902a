"""The training step as a graph: forward, loss, gradients and update, traced once."""
