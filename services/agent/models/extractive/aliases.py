"""Finds the other names that documents give to things: "苍鹭系列（Heron）" says that Heron is 苍鹭."""

import re
from collections.abc import Iterable

from services.agent.language import HAN
from services.agent.models.extractive.terms import fold, stem, terms_of

_NAMED_TWICE = re.compile(rf"(?P<han>[{HAN}]{{2,12}})\s?[（(](?P<latin>[A-Z][A-Za-z\-]{{1,30}})[）)]")


def aliases_in(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For the form of each term that is named twice, the forms of its other name."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for named in _NAMED_TWICE.finditer(text):
            # A common noun may stand behind the name ("苍鹭系列"), and words of the sentence before it.
            names = [term.form for term in terms_of(named["han"]) if term.is_specific] or [
                term.form for term in terms_of(named["han"])[:1]
            ]
            latin = stem(fold(named["latin"]))
            for han in names:
                found.setdefault(latin, set()).add(han)
                found.setdefault(han, set()).add(latin)
    return {form: tuple(sorted(others)) for form, others in found.items()}
