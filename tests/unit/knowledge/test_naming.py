import pytest

from services.agent.knowledge.naming import collection_name, document_filename
from services.runtime.errors import InvalidField


def test_an_empty_collection_is_the_default_one() -> None:
    assert collection_name("") == "default"


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 128])
def test_a_collection_may_be_named_so(name: str) -> None:
    assert collection_name(name) == name


@pytest.mark.parametrize("name", [" ", "a b", "a/b", "ü", "x" * 129, "a\n", "a\0"])
def test_a_collection_may_not_be_named_so(name: str) -> None:
    with pytest.raises(InvalidField, match="collection"):
        collection_name(name)


@pytest.mark.parametrize("name", ["a.md", "保修 条款.zh.md", "x" * 252 + ".md"])
def test_a_document_may_be_named_so(name: str) -> None:
    assert document_filename(name) == name


@pytest.mark.parametrize(
    "name", ["", "  ", "a/b.md", "..\\b.md", "a\0.md", "a\n.md", "x" * 253 + ".md", "\ud800.md", "a\u202eb.md"]
)
def test_a_document_may_not_be_named_so(name: str) -> None:
    with pytest.raises(InvalidField, match="filename"):
        document_filename(name)
