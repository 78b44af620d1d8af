"""What every knowledge index must do; the contracts are the docstrings of `knowledge/index/base.py`."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.agent.errors import CollectionNotFound, DocumentNotFound, EncoderMismatch
from services.agent.knowledge.index.base import KnowledgeIndex, PreparedDocument

Embed = Callable[..., list[float]]
Prepare = Callable[..., PreparedDocument]
OpenIndex = Callable[..., Awaitable[KnowledgeIndex]]


async def _texts(index: KnowledgeIndex, query: str, *, collection: str = "default", limit: int = 50) -> list[str]:
    async with index.view(collection) as view:
        return [hit.chunk.text for hit in await view.search_text(query, limit=limit)]


async def test_a_document_is_found_by_its_words_and_by_its_vector(
    index: KnowledgeIndex, prepare: Prepare, embed: Embed
) -> None:
    await index.replace_document(prepare("a.md", ["blue gateway", "red sensor"]), collection="default")
    async with index.view("default") as view:
        by_text = await view.search_text("red", limit=5)
        by_vector = await view.search_vectors(embed("Part 2 red sensor" + " padding" * 20), limit=5)
    assert [hit.chunk.filename for hit in by_text] == ["a.md"]
    assert by_text[0].chunk.text.startswith("Part 2\n\nred sensor")
    assert by_vector[0].chunk == by_text[0].chunk
    assert by_vector[0].score == pytest.approx(1, abs=1e-4)
    assert len(by_vector) == 2
    assert by_vector[0].score > by_vector[1].score


async def test_chinese_words_are_found(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.zh.md", ["白桦系列的保修期为两年", "林冠云的套餐"]), collection="default")
    (text,) = await _texts(index, "保修期")
    assert "保修期为两年" in text


@pytest.mark.parametrize("query", ["", "!?", "\0", "unknown", "' | 'red", "red:*", "\\", "the of 的"])
async def test_a_question_without_known_terms_finds_nothing_by_text(
    index: KnowledgeIndex, prepare: Prepare, query: str
) -> None:
    await index.replace_document(prepare("a.md", ["blue gateway"]), collection="default")
    assert await _texts(index, query) == []


async def test_versions_and_quotes_are_terms_like_any_other(index: KnowledgeIndex, prepare: Prepare) -> None:
    sections = ["firmware 3.x buffers", "firmware 4.x buffers", "it doesn't buffer"]
    await index.replace_document(prepare("a.md", sections), collection="default")
    (only,) = await _texts(index, "3.x")
    assert "firmware 3.x" in only
    (quoted,) = await _texts(index, "doesn't")
    assert "doesn't" in quoted


async def test_rarer_terms_weigh_more(index: KnowledgeIndex, prepare: Prepare) -> None:
    sections = [*(f"sensor number{number}" for number in range(8)), "gateway"]
    await index.replace_document(prepare("a.md", sections), collection="default")
    first, *others = await _texts(index, "sensor gateway")
    assert "gateway" in first
    assert len(others) == 8


async def test_the_limit_keeps_the_best(index: KnowledgeIndex, prepare: Prepare, embed: Embed) -> None:
    await index.replace_document(prepare("a.md", ["sensor", "sensor sensor sensor", "gateway"]), collection="default")
    (best,) = await _texts(index, "sensor", limit=1)
    assert "sensor sensor sensor" in best
    async with index.view("default") as view:
        assert len(await view.search_vectors(embed("gateway"), limit=2)) == 2


async def test_replacing_leaves_nothing_of_the_older_document(
    index: KnowledgeIndex, prepare: Prepare, embed: Embed
) -> None:
    await index.replace_document(prepare("a.md", ["old words", "old more", "old last"]), collection="default")
    record = await index.replace_document(prepare("a.md", ["new words"]), collection="default")
    assert record.chunk_count == 1
    assert await _texts(index, "old") == []
    async with index.view("default") as view:
        (hit,) = await view.search_vectors(embed("old words"), limit=10)
    assert "new words" in hit.chunk.text
    (listed,) = await index.list_collections(limit=10)
    assert (listed.document_count, listed.chunk_count) == (1, 1)


async def test_a_view_keeps_its_moment(index: KnowledgeIndex, prepare: Prepare, embed: Embed) -> None:
    await index.replace_document(prepare("a.md", ["old one", "old two"]), collection="default")
    async with index.view("default") as view:
        found = await view.search_text("old", limit=5)
        await index.replace_document(prepare("a.md", ["new one", "new two"]), collection="default")
        by_vector = await view.search_vectors(embed("new one"), limit=5)
        parents = await view.chunks({hit.chunk.parent_id for hit in found if hit.chunk.parent_id})
        assert {hit.chunk.chunk_id for hit in by_vector} == {hit.chunk.chunk_id for hit in found}
        assert parents
        assert all("new" not in parent.text for parent in parents.values())
    assert await _texts(index, "old") == []


async def test_searches_beside_replacements_see_whole_documents(
    index: KnowledgeIndex, prepare: Prepare, embed: Embed
) -> None:
    versions = [[f"state{version} part{part}" for part in range(1 + version)] for version in range(8)]
    await index.replace_document(prepare("a.md", versions[0]), collection="default")
    done = asyncio.Event()

    async def search() -> int:
        rounds = 0
        while not done.is_set():
            async with index.view("default") as view:
                by_vector = await view.search_vectors(embed("part"), limit=50)
                version = len(by_vector) - 1
                by_text = await view.search_text(f"state{version}", limit=50)
            assert {hit.chunk.chunk_id for hit in by_text} == {hit.chunk.chunk_id for hit in by_vector}
            rounds += 1
        return rounds

    async def replace() -> None:
        for sections in versions[1:]:
            await index.replace_document(prepare("a.md", sections), collection="default")
        done.set()

    *rounds, _ = await asyncio.gather(search(), search(), replace())
    assert all(rounds)


async def test_replacements_at_once_leave_one_whole_document(open_index: OpenIndex, prepare: Prepare) -> None:
    one, other = await open_index(), await open_index()
    documents = [prepare("a.md", [f"version{number} part{part}" for part in range(3)]) for number in range(6)]
    await asyncio.gather(
        *(
            (one, other)[number % 2].replace_document(document, collection="default")
            for number, document in enumerate(documents)
        )
    )
    found = [number for number in range(6) if await _texts(one, f"version{number}")]
    assert len(found) == 1
    assert len(await _texts(one, f"version{found[0]}")) == 3
    (collection,) = await one.list_collections(limit=10)
    assert (collection.document_count, collection.chunk_count) == (1, 3)


async def test_a_replacement_that_fails_changes_nothing(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["old words"]), collection="default")
    broken = prepare("a.md", ["new words", "new more"], dimensions=8)
    with pytest.raises(Exception, match="dimensions"):
        await index.replace_document(broken, collection="default")
    assert len(await _texts(index, "old")) == 1
    assert await _texts(index, "new") == []


async def test_a_cancelled_replacement_changes_nothing(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["old words"]), collection="default")
    task = asyncio.create_task(index.replace_document(prepare("a.md", ["new words"] * 300), collection="default"))
    async with index.view("default") as view:
        await view.search_text("old", limit=1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await _texts(index, "old")) == 1


async def test_scores_do_not_depend_on_documents_that_have_come_and_gone(
    index: KnowledgeIndex, prepare: Prepare
) -> None:
    async def scores() -> list[float]:
        async with index.view("default") as view:
            return [hit.score for hit in await view.search_text("sensor gateway limit", limit=10)]

    await index.replace_document(prepare("a.md", ["sensor one", "gateway two", "limit three"]), collection="default")
    before = await scores()
    await index.replace_document(prepare("b.md", ["sensor sensor", "limit"]), collection="default")
    assert await scores() != before
    await index.replace_document(prepare("b.md", ["gateway other", "limit", "sensor limit"]), collection="default")
    await index.replace_document(prepare("c.md", ["sensor gateway limit"]), collection="default")
    await index.delete_document(collection="default", filename="c.md")
    await index.delete_document(collection="default", filename="b.md")
    assert await scores() == before


async def test_a_term_whose_last_leaf_is_gone_is_unknown(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["sensor"]), collection="default")
    await index.replace_document(prepare("b.md", ["gateway"]), collection="default")
    assert await index.delete_document(collection="default", filename="b.md") == 1
    assert await _texts(index, "gateway") == []
    assert len(await _texts(index, "sensor")) == 1


async def test_collections_know_nothing_of_each_other(index: KnowledgeIndex, prepare: Prepare, embed: Embed) -> None:
    await index.replace_document(prepare("a.md", ["sensor here"]), collection="one")
    await index.replace_document(prepare("a.md", ["sensor there", "more there"]), collection="two")
    (text,) = await _texts(index, "sensor", collection="one")
    assert "sensor here" in text
    async with index.view("two") as view:
        hits = await view.search_vectors(embed("sensor here"), limit=10)
        other = {hit.chunk.chunk_id for hit in hits}
    async with index.view("one") as view:
        assert await view.chunks(other) == {}
        assert await view.similarities(embed("sensor"), other) == {}
    assert all("there" in hit.chunk.text for hit in hits)
    await index.delete_document(collection="one", filename="a.md")
    assert len(await _texts(index, "sensor", collection="two")) == 1


async def test_a_collection_exists_while_it_has_documents(index: KnowledgeIndex, prepare: Prepare) -> None:
    with pytest.raises(CollectionNotFound):
        await index.list_documents(collection="one", limit=1)
    await index.replace_document(prepare("a.md", ["sensor"]), collection="one")
    assert await index.delete_document(collection="one", filename="a.md") == 1
    for gone in (
        index.list_documents(collection="one", limit=1),
        index.delete_document(collection="one", filename="a.md"),
        _texts(index, "sensor", collection="one"),
    ):
        with pytest.raises(CollectionNotFound):
            await gone
    assert await index.list_collections(limit=10) == []


async def test_deleting_an_unknown_document_is_told(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["sensor"]), collection="default")
    with pytest.raises(DocumentNotFound):
        await index.delete_document(collection="default", filename="b.md")


async def test_another_encoder_is_refused_until_the_collection_is_empty(
    open_index: OpenIndex, prepare: Prepare
) -> None:
    index = await open_index()
    other = await open_index(encoder="other", dimensions=8)
    await index.replace_document(prepare("a.md", ["sensor"]), collection="default")
    for refused in (
        other.find_document(collection="default", filename="a.md"),
        other.replace_document(prepare("b.md", ["sensor"], dimensions=8), collection="default"),
        _texts(other, "sensor"),
    ):
        with pytest.raises(EncoderMismatch) as caught:
            await refused
        assert caught.value.metadata == {"collection": "default", "encoder": "words", "configured_encoder": "other"}
    assert [record.encoder for record in await other.list_collections(limit=5)] == ["words"]
    assert await other.delete_document(collection="default", filename="a.md") == 1
    await other.replace_document(prepare("a.md", ["sensor"], dimensions=8), collection="default")
    assert len(await _texts(other, "sensor")) == 1


async def test_documents_are_listed_by_name_and_go_on_after_a_name(index: KnowledgeIndex, prepare: Prepare) -> None:
    names = ["B.md", "a.md", "b.md", "中.md"]
    for name in reversed(names):
        await index.replace_document(prepare(name, ["sensor"]), collection="default")
    first = await index.list_documents(collection="default", limit=2)
    assert [record.filename for record in first] == names[:2]
    await index.delete_document(collection="default", filename="a.md")
    rest = await index.list_documents(collection="default", limit=10, after="a.md")
    assert [record.filename for record in rest] == names[2:]


async def test_collections_are_listed_by_name_with_their_counts(index: KnowledgeIndex, prepare: Prepare) -> None:
    for name in ("two", "one", "three"):
        await index.replace_document(prepare("a.md", ["sensor", "gateway"]), collection=name)
    await index.replace_document(prepare("b.md", ["limit"]), collection="two")
    listed = await index.list_collections(limit=2)
    assert [record.collection for record in listed] == ["one", "three"]
    (last,) = await index.list_collections(limit=2, after="three")
    assert (last.collection, last.document_count, last.chunk_count, last.encoder) == ("two", 2, 3, "words")


async def test_a_document_is_known_as_it_was_stored(index: KnowledgeIndex, prepare: Prepare) -> None:
    document = prepare("a.md", ["sensor"], page_number="iv")
    assert await index.find_document(collection="default", filename="a.md") is None
    record = await index.replace_document(document, collection="default")
    assert await index.find_document(collection="default", filename="a.md") == record
    assert await index.find_document(collection="default", filename="b.md") is None
    assert await index.list_documents(collection="default", limit=5) == [record]
    assert (record.sha256, record.size_bytes, record.page_count, record.recipe) == (
        document.sha256,
        document.size_bytes,
        1,
        "1",
    )
    assert record.ingest_time.tzinfo is not None
    async with index.view("default") as view:
        (hit,) = await view.search_text("sensor", limit=1)
    assert hit.chunk.page_number == "iv"


async def test_parents_are_found_by_the_ids_that_their_children_name(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["sensor", "gateway", "limit"]), collection="default")
    async with index.view("default") as view:
        (leaf,) = await view.search_text("gateway", limit=1)
        (parent,) = (await view.chunks([leaf.chunk.parent_id or ""])).values()
        (top,) = (await view.chunks([parent.parent_id or ""])).values()
    assert (leaf.chunk.level, parent.level, top.level) == (3, 2, 1)
    assert top.parent_id is None
    assert "gateway" in parent.text
    assert "sensor" in top.text


async def test_similarities_are_those_of_the_vector_search(
    index: KnowledgeIndex, prepare: Prepare, embed: Embed
) -> None:
    await index.replace_document(prepare("a.md", ["sensor", "gateway"]), collection="default")
    async with index.view("default") as view:
        hits = await view.search_vectors(embed("sensor"), limit=2)
        found = await view.similarities(embed("sensor"), [hit.chunk.chunk_id for hit in hits])
    assert found == pytest.approx({hit.chunk.chunk_id: hit.score for hit in hits})


async def test_a_failed_search_leaves_the_view_usable(index: KnowledgeIndex, prepare: Prepare) -> None:
    await index.replace_document(prepare("a.md", ["sensor"]), collection="default")
    async with index.view("default") as view:
        with pytest.raises(Exception, match="dimensions"):
            await view.search_vectors([1.0, 2.0], limit=1)
        assert len(await view.search_text("sensor", limit=1)) == 1


async def test_opening_at_once_makes_one_index(open_index: OpenIndex, prepare: Prepare) -> None:
    one, *_, other = await asyncio.gather(*(open_index() for _ in range(4)))
    await one.replace_document(prepare("a.md", ["sensor"]), collection="default")
    assert len(await _texts(other, "sensor")) == 1
