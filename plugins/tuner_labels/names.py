"""How alike the names of two labels are: by their words, and by their letters."""

import re
from difflib import SequenceMatcher
from itertools import takewhile

_WORD = re.compile(r"[a-z]+|\d+")
#: Words that say nothing by themselves.
_EMPTY = frozenset({"a", "and", "in", "of", "on", "or", "other", "sound", "sounds", "the"})
#: Letters that two words must share at their begin to be forms of one, and the share of the longer.
_STEM_LETTERS, _STEM_SHARE = 3, 0.6
_SAME_STEM = 0.9


def likeness(label: str, other: str) -> float:
    """Return how alike two names, as ``crying_baby`` and ``Baby cry, infant cry``, are, from 0 to 1.

    A name may list several, with commas: the one that is most alike counts. Words count more than letters: half is the
    share of all words that have a partner, three tenths that of the shorter name's words, the rest the edit distance.
    """
    return max(_alike(one, another) for one in _alternatives(label) for another in _alternatives(other))


def _alternatives(name: str) -> list[str]:
    return [name, *(part for part in re.split(r"[,;/]|\bor\b", name) if part.strip())]


def _alike(one: str, other: str) -> float:
    words, others = _words(one), _words(other)
    if not words or not others:
        return 0.0
    shorter, longer = sorted((words, others), key=len)
    partners = sum(max(_same_word(word, candidate) for candidate in longer) for word in shorter)
    whole = 2 * partners / (len(words) + len(others))
    letters = SequenceMatcher(None, "".join(words), "".join(others)).ratio()
    return 0.5 * whole + 0.3 * partners / len(shorter) + 0.2 * letters


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold()
    words = _WORD.findall(spaced)
    return [word for word in words if word not in _EMPTY] or words


def _same_word(word: str, other: str) -> float:
    """Return 1 for the same word, a little less for another form of it, else a share of the letters in common."""
    if word == other:
        return 1.0
    shorter, longer = sorted((len(word), len(other)))
    common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False))))
    if common >= max(_STEM_LETTERS, _STEM_SHARE * shorter) and longer - common <= _STEM_LETTERS:
        return _SAME_STEM
    ratio = SequenceMatcher(None, word, other).ratio()
    return ratio**3  # letters that two words share by chance count little
