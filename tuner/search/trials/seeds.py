"""Seeds of the parts of a study."""

import hashlib


def seeded(seed: int, *parts: object) -> int:
    """Return a 32-bit seed for one part of a study."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
