"""Models that timm and Hugging Face publish by name: entry points of the group ``tuner.published``."""
