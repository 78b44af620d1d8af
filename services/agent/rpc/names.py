"""The names of collections and documents, as callers send them."""

from services.agent.knowledge.loading import ending_fault
from services.agent.knowledge.naming import DEFAULT_COLLECTION, collection_fault, filename_fault
from services.runtime.checks import Checks


def collection(checks: Checks, field: str, value: str) -> str:
    """The collection's name; empty stands for the default one."""
    return optional_collection(checks, field, value) or DEFAULT_COLLECTION


def optional_collection(checks: Checks, field: str, value: str) -> str:
    """The collection's name, or empty where none is given."""
    if value and (fault := collection_fault(value)) is not None:
        checks.refuse(field, fault)
    return value


def filename(checks: Checks, field: str, value: str) -> str:
    if (fault := filename_fault(value)) is not None:
        checks.refuse(field, fault)
    return value


def readable_filename(checks: Checks, field: str, value: str) -> str:
    """The name of a document that is to be read as what its ending says."""
    if (fault := filename_fault(value) or ending_fault(value)) is not None:
        checks.refuse(field, fault)
    return value
