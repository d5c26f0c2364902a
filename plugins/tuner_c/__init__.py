"""A bundle's head as C99 for small boards, which answers, learns and forgets there: ``tuner export --c``."""

from tuner_c.export import write

__all__ = ["write"]
