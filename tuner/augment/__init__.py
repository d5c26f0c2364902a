"""Random changes of feature maps and signals that keep a sample's label."""
