import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.models import session_title


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("How do I reset the admin PIN?", "How do I reset the admin PIN"),
        ("  “Hello”,\n world!!  ", "Hello”,\u0020world"),
        (
            "How long does the warranty on Lindvale products last in Europe?",
            "How long does the warranty on Lindvale products",
        ),
        ("怎么重置管理员密码？", "怎么重置管理员密码"),
        ("请问在中国大陆销售的棚架网关使用什么频段呢？", "请问在中国大陆销售的棚架网关使用"),
        ("A" * 60, "A" * 16),
        ("？？？", "？？？"),
        ("", "…"),
        (" \n\t", "…"),
    ],
)
def test_a_title_is_the_opening_words_of_the_question(question: str, title: str) -> None:
    assert session_title(question) == title


@given(st.text(max_size=300))
def test_a_title_is_never_empty_and_never_long(question: str) -> None:
    title = session_title(question)
    assert title
    assert len(title) <= 48
    assert "\n" not in title


def test_characters_beyond_the_basic_plane_are_as_wide_as_others() -> None:
    assert session_title("\U00020000" * 40) == "\U00020000" * 16
