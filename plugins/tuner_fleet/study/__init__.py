"""A study that several workers share: who tries what, on which kind of device, and what the study says of itself."""
