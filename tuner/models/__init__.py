"""Small networks of the source systems; each module imports PyTorch when it is used."""
