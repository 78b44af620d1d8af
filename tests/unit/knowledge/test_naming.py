import pytest

from services.agent.knowledge.naming import collection_fault, filename_fault


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 128])
def test_a_collection_may_be_named_so(name: str) -> None:
    assert collection_fault(name) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "ü", "x" * 129, "a\n", "a\0"])
def test_a_collection_may_not_be_named_so(name: str) -> None:
    assert collection_fault(name)


@pytest.mark.parametrize("name", ["a.md", "保修 条款.zh.md", "x" * 252 + ".md"])
def test_a_document_may_be_named_so(name: str) -> None:
    assert filename_fault(name) is None


@pytest.mark.parametrize(
    "name", ["", "  ", "a/b.md", "..\\b.md", "a\0.md", "a\n.md", "x" * 253 + ".md", "\ud800.md", "a\u202eb.md"]
)
def test_a_document_may_not_be_named_so(name: str) -> None:
    assert filename_fault(name)
