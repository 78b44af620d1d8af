import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent.knowledge.chunking import LEAF_LEVEL, chunk_document
from services.agent.knowledge.loading import Block
from services.agent.knowledge.loading.blocks import Unreadable
from services.agent.knowledge.loading.readers import open_document


def read(page: str | bytes) -> list[Block]:
    return list(open_document(".html", page.encode() if isinstance(page, str) else page).blocks)


def text_of(page: str | bytes) -> str:
    return "\n".join(block.text for block in read(page))


def headings(page: str) -> list[tuple[str, int]]:
    return [(block.text, block.heading_level) for block in read(page) if block.heading_level]


def test_headings_open_sections_and_permalinks_are_no_part_of_them() -> None:
    page = "<h1>泵<a href='#p'>¶</a></h1><p>Text.<h2>Set <b>up</b></h2>More."
    assert read(page) == [Block("泵", 1), Block("Text."), Block("Set up", 2), Block("More.")]


def test_the_title_stands_for_a_first_heading_where_there_is_none() -> None:
    assert headings("<title>Manual</title><h2>A</h2>x") == [("Manual", 1), ("A", 2)]
    assert headings("<title>Manual</title><h1>A</h1>x") == [("A", 1)]


def test_what_is_not_shown_or_leads_elsewhere_is_left_out() -> None:
    page = """<nav>n1</nav><div role=navigation>n2</div><script>n3</script><style>n4</style><p hidden>n5</p>
    <template>n6</template><noscript>n7</noscript><!-- n8 --><p style="display: none">n9</p><dialog>n10</dialog>
    <p>Text</p>"""
    assert text_of(page) == "Text"


def test_the_part_that_says_it_is_the_main_one_is_read_alone() -> None:
    assert (
        text_of(f"<div>Menu</div><main><p>{'Text ' * 20}</p></main><footer>Imprint</footer>") == ("Text " * 20).strip()
    )


def test_a_main_part_that_holds_hardly_anything_hides_nothing() -> None:
    page = f"<main><p>Loading</p></main><div>{'Text ' * 20}</div>"
    assert "Text Text" in text_of(page) and "Loading" in text_of(page)


def test_words_keep_apart_and_together_as_they_are_shown() -> None:
    page = "<p>one<b>two</b> three<br>four</p><div>five</div>six&shy;ty&nbsp;7"
    assert text_of(page) == "onetwo three\nfour\n\nfive\n\nsixty 7"


def test_lists_keep_their_order_and_depth() -> None:
    page = "<ul><li>a<ul><li>b</ul><li><p>c<p>d</ul><ol start=3><li>e<li>f</ol><p>g"
    assert text_of(page) == "- a\n  - b\n- c\n  d\n\n3. e\n4. f\n\ng"


def test_the_cells_of_a_table_are_apart_and_reach_down_their_rows() -> None:
    page = (
        "<table><caption>Limits</caption><tr><th>Key<th>Value<tr><td rowspan=2>speed<td>1"
        "<tr><td>2<ul><li>x<li>y</ul></table>"
    )
    assert text_of(page) == "Limits\n| Key | Value |\n| speed | 1 |\n| speed | 2; x; y |"


def test_a_table_that_arranges_the_page_is_read_as_the_page() -> None:
    assert headings("<table><tr><td><h2>A</h2>x<td><table><tr><td>y<td>z</table></table>") == [("A", 2)]
    assert "| y | z |" in text_of("<table><tr><td><h2>A</h2>x<td><table><tr><td>y<td>z</table></table>")


def test_code_keeps_its_lines() -> None:
    assert text_of("<pre>\ndef f():\n\treturn  1\n\nf()</pre>") == "def f():\n    return  1\n\nf()"


def test_a_term_is_in_the_heading_path_of_its_text_and_of_nothing_else() -> None:
    page = f"""<h1>Options</h1><dl><dt>speed<dt>rate<dd>{"How fast it goes. " * 20}
    <dl><dt>unit<dd>{"Metres in each second. " * 20}</dl><p>{"Outer text again. " * 20}
    <dt>depth<dd>{"How deep. " * 30}</dl><p>{"What follows. " * 30}"""
    leaves = [chunk for chunk in chunk_document(read(page)) if chunk.level == LEAF_LEVEL]
    paths = {leaf.text.split(".")[0]: leaf.heading_path for leaf in leaves}
    assert paths == {
        "How fast it goes": ("Options", "speed, rate"),
        "Metres in each second": ("Options", "speed, rate", "unit"),
        "Outer text again": ("Options", "speed, rate"),
        "How deep": ("Options", "depth"),
        "What follows": ("Options",),
    }


def test_a_term_without_any_heading_above_stands_before_its_text() -> None:
    assert text_of("<dl><dt>speed<dd>fast</dl><p>after") == "speed\n\nfast\n\nafter"


def test_a_long_heading_is_cut_and_kept_whole_below() -> None:
    page = f"<h1>{'long ' * 100}</h1>"
    first, second = read(page)
    assert len(first.text) == 200 and second.text == ("long " * 100).strip()


def test_a_heading_that_is_never_closed_swallows_nothing() -> None:
    assert headings("<h1>Title<p>one<h2>Two</h2>three")[-1] == ("Two", 2)


@pytest.mark.parametrize("charset", ["gb2312", "GBK", "big5", "shift_jis", "iso-2022-jp", "windows-1252", "utf-8"])
def test_the_encoding_that_a_page_names_is_taken(charset: str) -> None:
    text = "Größe" if charset == "windows-1252" else "日本中文"
    page = f'<head><meta http-equiv="Content-Type" content="text/html; charset={charset}"></head><p>{text}'
    assert text_of(page.encode(charset)) == text


@pytest.mark.parametrize("charset", ["gb2312", "utf-16", "unicode_escape", "zip", "no-such"])
def test_a_page_that_names_another_encoding_than_its_own_is_read_all_the_same(charset: str) -> None:
    assert text_of(f"<meta charset={charset}><p>泵的保修期\\u0041".encode()) == "泵的保修期\\u0041"


def test_elements_nested_past_any_reason_are_refused() -> None:
    with pytest.raises(Unreadable, match="nested"):
        read("<div>" * 10_000 + "x")


_INLINE = ("b", "span", "a", "code", "sup", "font", "label")
_BLOCK = ("p", "div", "section", "article", "aside", "header", "footer", "blockquote", "details", "figure", "pre")
_PARTS = (
    "ul",
    "ol",
    "dl",
    "table",
    "tr",
    "td",
    "th",
    "li",
    "dt",
    "dd",
    "caption",
    "tbody",
    "h1",
    "h3",
    "form",
    "option",
)


@settings(deadline=None)
@given(
    st.recursive(
        st.text(string.ascii_lowercase, min_size=3, max_size=6).map(lambda word: f" {word} "),
        lambda inner: st.builds(
            lambda tag, parts, closed: f"<{tag}>{''.join(parts)}" + (f"</{tag}>" if closed else ""),
            st.sampled_from(_INLINE + _BLOCK + _PARTS),
            st.lists(inner, max_size=4),
            st.booleans(),
        ),
        max_leaves=25,
    )
)
def test_no_word_that_is_shown_is_lost(page: str) -> None:
    words = re.findall(r" ([a-z]+) ", page)
    if words:
        read_words = re.findall(r"[a-z]+", text_of(page))
        missing = [word for word in words if read_words.count(word) < words.count(word)]
        assert missing == []
