"""Bytes of a document to blocks of text: a reader for each kind of file, run in processes of their own."""

from services.agent.knowledge.loading.blocks import Block, LoadedDocument
from services.agent.knowledge.loading.formats import ENDINGS, ending_fault

__all__ = ["ENDINGS", "Block", "LoadedDocument", "ending_fault"]
