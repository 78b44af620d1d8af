from services.agent.models.extractive import ExtractiveQuestionModel
from services.agent.schemas import EvidenceGrade, QueryRewrite, RetrievedChunk, RewriteMethod


async def _rewrite(question: str, chunks: list[RetrievedChunk]) -> QueryRewrite:
    return await ExtractiveQuestionModel().rewrite(question, chunks=chunks, grade=EvidenceGrade())


async def test_a_name_or_version_that_narrows_the_question_is_stepped_back_from(
    espresso_machines: list[RetrievedChunk],
) -> None:
    rewrite = await _rewrite("How often must a Kestrel 2.4 be descaled?", espresso_machines)
    assert rewrite.method is RewriteMethod.STEP_BACK
    assert rewrite.rewritten_query == rewrite.step_back_question
    assert "descaled" in rewrite.rewritten_query
    assert "2.4" not in rewrite.rewritten_query
    assert not rewrite.hyde_document


async def test_a_general_question_gets_a_passage_in_the_words_of_the_evidence(
    espresso_machines: list[RetrievedChunk],
) -> None:
    rewrite = await _rewrite("how is limestone cleaned away", espresso_machines)
    assert rewrite.method is RewriteMethod.HYDE
    assert rewrite.rewritten_query == rewrite.hyde_document
    assert "removing limestone from a boiler" in rewrite.hyde_document
    assert not rewrite.step_back_question


async def test_without_evidence_there_is_still_a_query_in_the_language_of_the_question() -> None:
    english = await _rewrite("how do I bake bread", [])
    chinese = await _rewrite("怎么烤面包？", [])
    assert english.method is chinese.method is RewriteMethod.STEP_BACK
    assert "bake bread" in english.rewritten_query
    assert "面包" in chinese.rewritten_query


async def test_the_same_question_is_always_reworded_the_same(espresso_machines: list[RetrievedChunk]) -> None:
    first = await _rewrite("how is limestone cleaned away", espresso_machines)
    assert await _rewrite("how is limestone cleaned away", espresso_machines) == first
