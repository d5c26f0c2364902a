"""Networks of model files, and the memory of training them."""
