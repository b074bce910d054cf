"""Texts of plugins, made fit to be shown: names, notes, messages of their errors.

A plugin may say anything: codes that move a terminal's cursor, surrogates that no stream takes, a megabyte,
or raise an error whose text cannot be had.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 2000
"""How many characters of a text are shown."""


def printable(text: object, longest: int = LONGEST) -> str:
    r"""Return a text in one line of so many characters at most, with escapes for what does not print.

    >>> printable("\x1b[2Jgone\n  again"), printable("abcdef", 3)
    ('\\x1b[2Jgone again', 'abc...')
    """
    line = str(text)
    cut = line[: 2 * longest]
    shown = "".join(map(_escaped, " ".join(cut.split())))
    return shown if len(shown) <= longest and len(cut) == len(line) else f"{shown[:longest]}..."


def printable_lines(text: str) -> str:
    """Return a text of many lines, a traceback say, with escapes for what does not print in each."""
    return "\n".join("".join(map(_escaped, line)) for line in text.split("\n"))


def error_text(error: BaseException) -> str:
    """Return the text of an error in one line, "no reason given" for none.

    That is code of the plugin's as well, where the error is of a class of its own.
    """
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as second:
        return f"its text cannot be had, as that raises {kind_of(second)}"
    return printable(text) or "no reason given"


def kind_of(error: BaseException) -> str:
    """Return the name of an error's class."""
    return printable(type(error).__name__, 100)


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
