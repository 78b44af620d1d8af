"""The statements of the pgvector index."""

from functools import cache
from typing import Final

from sqlalchemy import TextClause, text

CHECK: Final = text("SELECT 1")
COLLECTION: Final = text("SELECT * FROM askback_knowledge.collections WHERE name = :name")
LOCK: Final = text("SELECT * FROM askback_knowledge.collections WHERE name = :name FOR UPDATE")
LOCK_OR_CREATE: Final = text(
    """
    INSERT INTO askback_knowledge.collections AS kept (name, encoder, dimensions)
    VALUES (:name, :encoder, :dimensions)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING *
    """
)
DROP_EMPTY_COLLECTION: Final = text(
    "DELETE FROM askback_knowledge.collections WHERE id = :collection_id AND document_count = 0"
)
LIST_COLLECTIONS: Final = text(
    "SELECT * FROM askback_knowledge.collections WHERE name > :after ORDER BY name LIMIT :limit"
)

DOCUMENT: Final = text(
    "SELECT * FROM askback_knowledge.documents WHERE collection_id = :collection_id AND filename = :filename"
)
LIST_DOCUMENTS: Final = text(
    """
    SELECT * FROM askback_knowledge.documents
    WHERE collection_id = :collection_id AND filename > :after
    ORDER BY filename LIMIT :limit
    """
)
INSERT_DOCUMENT: Final = text(
    """
    INSERT INTO askback_knowledge.documents
      (collection_id, filename, size_bytes, page_count, leaf_count, sha256, recipe)
    VALUES (:collection_id, :filename, :size_bytes, :page_count, :leaf_count, :sha256, :recipe)
    RETURNING *
    """
)
DELETE_DOCUMENT: Final = text("DELETE FROM askback_knowledge.documents WHERE id = :document_id")
INSERT_CHUNKS: Final = text(
    """
    INSERT INTO askback_knowledge.chunks
      (document_id, collection_id, level, ordinal, parent, page_number, heading_path, body,
       dimensions, embedding, terms, term_count)
    SELECT CAST(:document_id AS bigint), CAST(:collection_id AS bigint), level, ordinal, parent, page_number,
           heading_path, body, CASE WHEN embedding IS NOT NULL THEN CAST(:dimensions AS integer) END,
           CAST(embedding AS vector), CAST(term_vector AS tsvector), term_count
    FROM unnest(
      CAST(:levels AS smallint[]), CAST(:ordinals AS integer[]), CAST(:parents AS integer[]),
      CAST(:page_numbers AS text[]), CAST(:heading_paths AS text[]), CAST(:bodies AS text[]),
      CAST(:embeddings AS text[]), CAST(:term_vectors AS text[]), CAST(:term_counts AS integer[])
    ) AS given (level, ordinal, parent, page_number, heading_path, body, embedding, term_vector, term_count)
    """
)

_DOCUMENT_TERMS = """
    SELECT lexeme AS term, count(*) AS leaf_count
    FROM askback_knowledge.chunks, unnest(terms)
    WHERE document_id = :document_id AND level = 3
    GROUP BY lexeme
"""
COUNT_TERMS_IN: Final = text(
    f"""
    INSERT INTO askback_knowledge.term_frequencies AS known (collection_id, term, leaf_count)
    SELECT :collection_id, term, leaf_count FROM ({_DOCUMENT_TERMS}) AS added
    ON CONFLICT (collection_id, term) DO UPDATE SET leaf_count = known.leaf_count + excluded.leaf_count
    """
)
# The two parts touch different rows: those that no other leaf holds, and the others.
COUNT_TERMS_OUT: Final = text(
    f"""
    WITH gone AS MATERIALIZED ({_DOCUMENT_TERMS}),
    dropped AS (
      DELETE FROM askback_knowledge.term_frequencies AS known USING gone
      WHERE known.collection_id = :collection_id AND known.term = gone.term AND known.leaf_count <= gone.leaf_count
    )
    UPDATE askback_knowledge.term_frequencies AS known SET leaf_count = known.leaf_count - gone.leaf_count
    FROM gone
    WHERE known.collection_id = :collection_id AND known.term = gone.term AND known.leaf_count > gone.leaf_count
    """
)


def _count_document(sign: str) -> TextClause:
    return text(
        f"""
        UPDATE askback_knowledge.collections AS kept SET
          document_count = kept.document_count {sign} 1,
          leaf_count = kept.leaf_count {sign} changed.leaf_count,
          term_total = kept.term_total {sign} changed.term_total
        FROM (
          SELECT count(*) AS leaf_count, coalesce(sum(term_count), 0) AS term_total
          FROM askback_knowledge.chunks WHERE document_id = :document_id AND level = 3
        ) AS changed
        WHERE kept.id = :collection_id
        """
    )


COUNT_DOCUMENT_IN: Final = _count_document("+")
COUNT_DOCUMENT_OUT: Final = _count_document("-")

_CHUNK = "c.document_id, c.level, c.ordinal, c.parent, c.page_number, c.heading_path, c.body, d.filename"
_WANTED = """
    unnest(CAST(:document_ids AS bigint[]), CAST(:levels AS smallint[]), CAST(:ordinals AS integer[]))
      AS wanted (document_id, level, ordinal)
    JOIN askback_knowledge.chunks AS c USING (document_id, level, ordinal)
"""
CHUNKS: Final = text(
    f"""
    SELECT {_CHUNK}
    FROM {_WANTED} JOIN askback_knowledge.documents AS d ON d.id = c.document_id
    WHERE c.collection_id = :collection_id
    """
)

TERM_FREQUENCIES: Final = text(
    """
    SELECT term, leaf_count FROM askback_knowledge.term_frequencies
    WHERE collection_id = :collection_id AND term = ANY(CAST(:terms AS text[]))
    """
)
TEXT_CANDIDATES: Final = text(
    """
    SELECT document_id, level, ordinal, term_count, counted.term_counts
    FROM (
      SELECT document_id, level, ordinal, term_count, terms
      FROM askback_knowledge.chunks
      WHERE collection_id = :collection_id AND level = 3 AND terms @@ CAST(:query AS tsquery)
      ORDER BY ts_rank(terms, CAST(:query AS tsquery), 1) DESC, document_id, ordinal
      LIMIT :limit
    ) AS candidate
    CROSS JOIN LATERAL (
      SELECT json_object_agg(lexeme, cardinality(positions)) AS term_counts
      FROM unnest(candidate.terms) WHERE lexeme = ANY(CAST(:terms AS text[]))
    ) AS counted
    """
)

ITERATE_VECTOR_INDEX: Final = text(
    """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
           set_config('hnsw.ef_search', :ef_search, true)
    """
)


@cache
def nearest_by_index(dimensions: int) -> TextClause:
    return text(
        f"""
        WITH nearest AS MATERIALIZED (
          SELECT document_id, level, ordinal,
                 embedding::vector({dimensions:d}) <=> CAST(:vector AS vector({dimensions:d})) AS distance
          FROM askback_knowledge.chunks
          WHERE level = 3 AND dimensions = {dimensions:d} AND collection_id = :collection_id
          ORDER BY embedding::vector({dimensions:d}) <=> CAST(:vector AS vector({dimensions:d}))
          LIMIT :limit
        )
        SELECT {_CHUNK}, 1 - nearest.distance AS similarity
        FROM nearest JOIN askback_knowledge.chunks AS c USING (document_id, level, ordinal)
        JOIN askback_knowledge.documents AS d ON d.id = c.document_id
        """.replace("::", "\\:\\:")
    )


@cache
def nearest_exactly(dimensions: int) -> TextClause:
    # Materialized, so that the planner does not turn to the vector index.
    return text(
        f"""
        WITH leaf AS MATERIALIZED (
          SELECT document_id, level, ordinal,
                 embedding <=> CAST(:vector AS vector({dimensions:d})) AS distance
          FROM askback_knowledge.chunks WHERE level = 3 AND collection_id = :collection_id
        ), nearest AS MATERIALIZED (
          SELECT * FROM leaf ORDER BY distance, document_id, ordinal LIMIT :limit
        )
        SELECT {_CHUNK}, 1 - nearest.distance AS similarity
        FROM nearest JOIN askback_knowledge.chunks AS c USING (document_id, level, ordinal)
        JOIN askback_knowledge.documents AS d ON d.id = c.document_id
        """
    )


@cache
def similarities(dimensions: int) -> TextClause:
    return text(
        f"""
        SELECT c.document_id, c.level, c.ordinal,
               1 - (c.embedding <=> CAST(:vector AS vector({dimensions:d}))) AS similarity
        FROM {_WANTED} WHERE c.collection_id = :collection_id AND c.embedding IS NOT NULL
        """
    )
