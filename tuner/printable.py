"""Text as a terminal may have it: names of files are any bytes, and messages quote them."""

MOST_LETTERS = 4000  # of an error's line


def printable(text: str, keep: str = "") -> str:
    """Return a text as a terminal may have it: what would move its cursor or hide a name is escaped.

    Args:
        text: May hold names of files, which are any bytes.
        keep: Letters that stay whatever they are.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in text)


def one_line(text: str) -> str:
    """Return an error's message as one printable line of bounded length."""
    line = printable(" ".join(text.split("\n")))
    return line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS // 2]} … {line[-MOST_LETTERS // 2 :]}"
