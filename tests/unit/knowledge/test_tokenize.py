import pytest

from services.agent.knowledge.tokenize import index_terms, is_chinese, query_terms


def test_chinese_is_cut_into_words_and_their_parts() -> None:
    assert index_terms("保修期") == ["保修", "保修期"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("battery", "Batteries"),
        ("charge", "charging"),
        ("charge", "charged"),
        ("fee", "FEES"),
        ("API", "ＡＰＩ"),
        ("webhook", "webhooks"),
        ("stop", "stopped"),
        ("customer", "customer's"),
    ],
)
def test_forms_of_one_word_are_one_term(one: str, other: str) -> None:
    assert index_terms(one) == index_terms(other)


@pytest.mark.parametrize("word", ["3.x", "v3", "4.1.2", "0.3", "b40"])
def test_versions_and_numbers_stay_whole(word: str) -> None:
    assert index_terms(f"with {word}.") == ["with", word]


def test_words_with_hyphens_are_found_whole_and_by_their_parts() -> None:
    assert index_terms("ultra-low E-17") == ["ultra-low", "ultra", "low", "e-17", "17"]


def test_a_question_is_searched_by_its_own_words_alone() -> None:
    assert query_terms("How long is the warranty? 保修期是多少？") == ["warranty", "保修", "保修期"]


@pytest.mark.parametrize("text", ["", "\0\n\t", "?!。", "🙂", "how is it", "是什么"])
def test_what_has_no_words_of_its_own_has_no_query_terms(text: str) -> None:
    assert query_terms(text) == []


def test_terms_have_a_bounded_length() -> None:
    assert {len(term) for term in index_terms("x" * 10_000 + " " + "哈" * 10_000)} <= set(range(65))


def test_a_few_latin_names_leave_a_text_chinese() -> None:
    assert is_chinese("白桦 B40 的超低温校准多少钱？")
    assert not is_chinese("How do I write 白桦 in English, please?")
    assert not is_chinese("")
