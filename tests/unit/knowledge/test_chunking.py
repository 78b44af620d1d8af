from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent.knowledge.chunking import LEAF_LEVEL, Chunk, chunk_document
from services.agent.knowledge.loading import Block
from services.agent.knowledge.sentences import sentence_spans

LIMITS = {1: 2400, 2: 1600, 3: 800}

_words = st.sampled_from("sensor gateway limit 传感器 网关 保修期 12 3.x e.g. Dr. £5".split())
_sentences = st.builds(
    lambda words, end: " ".join(words) + end,
    st.lists(_words, min_size=1, max_size=40),
    st.sampled_from([". ", "。", "! ", "？", ".\n\n", "\n- ", ";\n"]),
)
_texts = st.builds("".join, st.lists(_sentences, min_size=1, max_size=60))
_blocks = st.lists(
    st.one_of(
        st.builds(Block, _texts),
        st.builds(Block, st.text(min_size=1, max_size=30).filter(str.strip), heading_level=st.integers(1, 6)),
    ),
    min_size=1,
    max_size=12,
)


def _leaves(chunks: list[Chunk]) -> list[Chunk]:
    return [chunk for chunk in chunks if chunk.level == LEAF_LEVEL]


def _squeezed(text: str) -> str:
    return "".join(text.split())


@given(st.text(alphabet="ab .!?。！\n|-#1)", max_size=600), st.integers(20, 200))
def test_sentence_spans_tile_the_text_within_the_limit(text: str, limit: int) -> None:
    spans = list(sentence_spans(text, limit))
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(0 < end - start <= limit for start, end in spans)


@settings(max_examples=60, deadline=None)
@given(_blocks)
def test_every_sentence_is_whole_in_some_leaf(blocks: list[Block]) -> None:
    leaves = [_squeezed(leaf.passage) for leaf in _leaves(chunk_document(blocks))]
    for block in blocks:
        if block.heading_level:
            continue
        text = block.text.strip()
        for start, end in sentence_spans(text, LIMITS[LEAF_LEVEL]):
            sentence = _squeezed(text[start:end])
            assert any(sentence in leaf for leaf in leaves)


@settings(max_examples=60, deadline=None)
@given(_blocks)
def test_every_heading_is_in_some_leaf(blocks: list[Block]) -> None:
    leaves = [_squeezed(leaf.passage) for leaf in _leaves(chunk_document(blocks))]
    for block in blocks:
        if block.heading_level:
            assert any(_squeezed(block.text) in leaf for leaf in leaves)


@settings(max_examples=60, deadline=None)
@given(_blocks)
def test_no_chunk_is_longer_than_its_level_allows(blocks: list[Block]) -> None:
    for chunk in chunk_document(blocks):
        assert len(chunk.text) <= LIMITS[chunk.level]


@settings(max_examples=60, deadline=None)
@given(_blocks)
def test_parents_come_first_and_hold_their_childrens_text(blocks: list[Block]) -> None:
    seen: dict[tuple[int, int], Chunk] = {}
    for chunk in chunk_document(blocks):
        seen[chunk.level, chunk.ordinal] = chunk
        if chunk.level == 1:
            assert chunk.parent is None
            continue
        assert chunk.parent is not None
        parent = seen[chunk.level - 1, chunk.parent]
        assert chunk.text in parent.text
        assert chunk.heading_path[: len(parent.heading_path)] == parent.heading_path


@settings(max_examples=40, deadline=None)
@given(_blocks)
def test_ordinals_count_each_level_without_gaps(blocks: list[Block]) -> None:
    chunks = chunk_document(blocks)
    for level in LIMITS:
        ordinals = [chunk.ordinal for chunk in chunks if chunk.level == level]
        assert ordinals == list(range(len(ordinals)))
        assert ordinals


def test_windows_inside_one_section_overlap_by_an_eighth_at_most() -> None:
    sentences = [f"Sentence number {number} says something of its own." for number in range(100)]
    chunks = chunk_document([Block(" ".join(sentences))])
    for level, limit in LIMITS.items():
        siblings = [
            pair for pair in pairwise(c for c in chunks if c.level == level) if pair[0].parent == pair[1].parent
        ]
        assert siblings
        for before, after in siblings:
            shared = [sentence for sentence in sentences if sentence in before.text and sentence in after.text]
            assert shared
            assert len(" ".join(shared)) <= limit // 8


def test_large_sections_do_not_share_a_leaf() -> None:
    blocks = [Block("Manual", 1)]
    for name in ("Alder", "Birch", "Cedar"):
        blocks += [Block(name, 2), Block(f"The {name} line reports on its own. " * 12)]
    leaves = _leaves(chunk_document(blocks))
    assert [leaf.heading_path for leaf in leaves] == [("Manual", name) for name in ("Alder", "Birch", "Cedar")]
    for leaf in leaves:
        assert sum(name in leaf.text for name in ("Alder", "Birch", "Cedar")) == 1


def test_a_chunk_of_several_sections_names_each_where_it_begins() -> None:
    blocks = [
        Block("Manual", 1),
        Block("Intro."),
        Block("Alder", 2),
        Block("Ten."),
        Block("Birch", 2),
        Block("Five."),
    ]
    (top,) = [chunk for chunk in chunk_document(blocks) if chunk.level == 1]
    assert top.passage == "Manual\n\nIntro.\n\n## Alder\n\nTen.\n\n## Birch\n\nFive."


def test_a_document_of_headings_alone_keeps_them() -> None:
    (leaf,) = _leaves(chunk_document([Block("One", 1), Block("Two", 1)]))
    assert leaf.passage == "# One\n\n# Two"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "It is rated for 0.3 °C, e.g. in cold rooms. The next sentence begins here.",
            ["It is rated for 0.3 °C, e.g. in cold rooms.", "The next sentence begins here."],
        ),
        (
            "雪松记录仪的默认上报间隔为两分钟，可以在林冠云中修改。“改动之后需要等待下一次上报才会生效哦！”电池寿命因此会缩短到原来的三分之一左右。",
            [
                "雪松记录仪的默认上报间隔为两分钟，可以在林冠云中修改。",
                "“改动之后需要等待下一次上报才会生效哦！”",
                "电池寿命因此会缩短到原来的三分之一左右。",
            ],
        ),
        (
            "A line that was wrapped by hand\nin the middle of its sentence. Then another one follows.",
            ["A line that was wrapped by hand\nin the middle of its sentence.", "Then another one follows."],
        ),
        (
            "- the first item of a list, long enough\n- the second item of a list, long enough",
            ["- the first item of a list, long enough", "- the second item of a list, long enough"],
        ),
    ],
)
def test_sentences_end_where_a_reader_would_say(text: str, parts: list[str]) -> None:
    assert [text[start:end].strip() for start, end in sentence_spans(text, 800)] == parts


def test_a_table_that_fits_is_not_cut() -> None:
    table = "| Model | Weight |\n|---|---|\n| A10 | 140 g |\n| A20 | 185 g |\n"
    text = f"The weights are in this table.\n\n{table}\nAfter the table comes more text."
    assert table + "\n" in [text[start:end] for start, end in sentence_spans(text, 800)]


def test_a_leaf_stands_on_one_page_and_tells_it() -> None:
    blocks = [Block(f"About {page}. " * 15, page_number=page) for page in ("i", "ii", "iii")]
    leaves = _leaves(chunk_document(blocks))
    assert [(leaf.page_number, leaf.text.split(".")[0]) for leaf in leaves] == [
        ("i", "About i"),
        ("ii", "About ii"),
        ("iii", "About iii"),
    ]


def test_a_very_short_page_shares_the_leaf_and_the_number_of_the_next() -> None:
    blocks = [Block("Title page.", page_number="i"), Block("Text of a page. " * 20, page_number="ii")]
    assert [leaf.page_number for leaf in _leaves(chunk_document(blocks))] == ["ii"]
