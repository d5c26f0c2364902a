"""The processes that trials run in, and the limits on them."""
