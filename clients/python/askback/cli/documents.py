"""The commands about documents: ingest, documents, search."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from askback.agent.v1 import knowledge_service_pb2
from askback.cli.citations import below_heading, source
from askback.cli.failures import UsageFault, exit_code, plain_words, reach, run
from askback.cli.options import AGENT_ADDRESS, Address, AsJson, CollectionName
from askback.cli.output import local_time, print_json, print_line, print_rows, size
from askback.cli.printable import printable
from askback.client.errors import AskbackError, Unavailable
from askback.client.knowledge import KnowledgeClient

# What a folder is searched for; a file that is named is sent whatever its ending.
_ENDINGS = (".docx", ".htm", ".html", ".md", ".pdf", ".txt")
_LISTED = ", ".join(_ENDINGS)
_SNIPPET_CHARACTERS = 300


def register(app: typer.Typer) -> None:
    app.command()(ingest)
    app.command()(documents)
    app.command()(search)


def ingest(
    paths: Annotated[list[Path], typer.Argument(help=f"Files, and folders to look through for {_LISTED}.")],
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Put documents into a collection; one of the same name is replaced."""
    failure = run(_ingest(paths, collection, address, as_json))
    if failure is not None:
        raise typer.Exit(exit_code(failure))


async def _ingest(paths: list[Path], collection: str, address: str, as_json: bool) -> AskbackError | None:
    """Sends all that can be sent; the first refusal is the command's."""
    files = _files(paths)
    passed_over = _passed_over(paths)
    failure: AskbackError | None = None
    ingested = unchanged = refused = 0
    async with _knowledge(address) as knowledge:
        for file in files:
            try:
                response = await knowledge.ingest_document(content=file, collection=collection)
            except Unavailable:
                raise
            except AskbackError as error:
                typer.echo(f"askback: {printable(file.name)} was refused: {printable(plain_words(error))}", err=True)
                failure = failure or error
                refused += 1
                continue
            if response.unchanged:
                unchanged += 1
            else:
                ingested += 1
            if as_json:
                print_json(response)
                continue
            document = response.document
            state = "unchanged" if response.unchanged else f"{document.chunk_count} chunks"
            typer.echo(f"{printable(document.filename)}: {state}")
    if not as_json and any(path.is_dir() for path in paths):
        typer.echo(f"{ingested} ingested, {unchanged} unchanged, {refused} refused")
        if passed_over:
            typer.echo(f"{passed_over} passed over: only {_LISTED} are read from a folder")
    return failure


def _passed_over(paths: list[Path]) -> int:
    folders = [path for path in paths if path.is_dir()]
    return sum(
        file.is_file() and file.suffix.lower() not in _ENDINGS for folder in folders for file in folder.rglob("*")
    )


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix.lower() in _ENDINGS and file.is_file())
            if not found:
                raise UsageFault(f"{path}: holds no {_LISTED} file")
            files += found
        elif path.exists():
            files.append(path)
        else:
            raise UsageFault(f"{path}: no such file or folder")
    by_name: dict[str, Path] = {}
    for file in dict.fromkeys(file.resolve() for file in files):
        # A document is known by its name: the second would replace the first.
        other = by_name.setdefault(file.name, file)
        if other != file:
            raise UsageFault(f"two documents of one name: {other} and {file}")
    return list(by_name.values())


def documents(collection: CollectionName = "", address: Address = AGENT_ADDRESS, as_json: AsJson = False) -> None:
    """List a collection's documents."""
    run(_documents(collection, address, as_json))


async def _documents(collection: str, address: str, as_json: bool) -> None:
    rows: list[knowledge_service_pb2.Document] = []
    async with _knowledge(address) as knowledge:
        async for document in knowledge.documents(collection=collection):
            if as_json:
                print_json(document)
            else:
                rows.append(document)
    if as_json:
        return
    print_rows(
        Console(highlight=False),
        ("document", "size", "pages", "chunks", "ingested"),
        (
            (
                document.filename,
                size(document.size_bytes),
                str(document.page_count or ""),
                str(document.chunk_count),
                local_time(document.ingest_time),
            )
            for document in rows
        ),
        cut="document",
        nothing="no document in this collection",
    )


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    top_k: Annotated[int, typer.Option("--top-k", min=0, max=50, help="At most this many; 0: the service's own.")] = 0,
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what a question would find; no model is asked."""
    run(_search(query, top_k, collection, address, as_json))


async def _search(query: str, top_k: int, collection: str, address: str, as_json: bool) -> None:
    async with _knowledge(address) as knowledge:
        found = await knowledge.search_knowledge(query=query, top_k=top_k, collection=collection)
    if as_json:
        for chunk in found.chunks:
            print_json(chunk)
        return
    console = Console(highlight=False)
    for number, chunk in enumerate(found.chunks, start=1):
        score = f"  {chunk.score:.3f}" if chunk.HasField("score") else ""
        text = " ".join(printable(below_heading(chunk)).split())
        shown = text if len(text) <= _SNIPPET_CHARACTERS else text[:_SNIPPET_CHARACTERS].rstrip() + " …"
        print_line(console, f"[{number}]{score}  {source(chunk)}", style="cyan")
        console.print(Text(shown), soft_wrap=not console.is_terminal)
    if not found.chunks:
        console.print("nothing found", style="dim")


def _knowledge(address: str) -> AbstractAsyncContextManager[KnowledgeClient]:
    return reach(KnowledgeClient(address), service="agent", setting="ASKBACK_AGENT_ADDRESS")
