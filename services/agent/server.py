"""Builds the agent service: the one place where its parts are chosen and put together."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc.aio
import structlog

from askback.agent.v1 import agent_service_pb2, knowledge_service_pb2
from askback.agent.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from askback.agent.v1.knowledge_service_pb2_grpc import add_KnowledgeServiceServicer_to_server
from askback.client import StorageClient
from services.agent.conversation import StoredConversation
from services.agent.errors import KnowledgeUnavailable
from services.agent.knowledge.index.base import IndexUnusable
from services.agent.knowledge.knowledge_base import KnowledgeBase, open_knowledge
from services.agent.knowledge.retrieve import RetrievalSettings
from services.agent.models import session_title
from services.agent.models.extractive import load_dictionary
from services.agent.models.roles import Models, open_models
from services.agent.rag.graph import build_rag_graph
from services.agent.rpc.agent_service import AgentServicer
from services.agent.rpc.knowledge_service import KnowledgeServicer
from services.agent.runner import TurnRunner
from services.agent.runtime import AnsweringAgent
from services.agent.settings import AgentSettings
from services.runtime.errors import ShuttingDown
from services.runtime.server import RunningServer, ServerOptions, StartupError, running_server

log = structlog.get_logger()

SERVICE_NAMES = tuple(
    service.full_name
    for module in (agent_service_pb2, knowledge_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
# The built-in encoder takes about a minute for each 600 KB on two cores: nearly an hour for the largest document.
_INGEST_LIMIT_S = 7200.0
# What a turn needs beyond its own limit to be stored.
_STORING_S = 60.0
_INDEX_WAIT_S = 30.0


@asynccontextmanager
async def agent_server(settings: AgentSettings, *, models: Models | None = None) -> AsyncIterator[RunningServer]:
    """Opens the documents' index and serves until left; raises StartupError where it cannot."""
    async with AsyncExitStack() as stack:
        if models is None:
            models = await stack.enter_async_context(open_models(settings))
        knowledge = await stack.enter_async_context(_opened_knowledge(settings))
        storage = await stack.enter_async_context(StorageClient(settings.storage_address))
        await asyncio.to_thread(load_dictionary)
        # Beside the start, not before it: a question that comes at once waits no longer than it must.
        stack.push_async_callback(_cancelled, asyncio.create_task(_warm(knowledge)))
        graph = build_rag_graph(knowledge.search, models.question, models.grade)
        runner = TurnRunner(
            conversation=StoredConversation(
                storage,
                lease_s=settings.run_lease_s,
                context_messages=settings.context_messages,
                hitl_expire_s=settings.hitl_expire_s,
            ),
            agent=AnsweringAgent(model=models.answering, graph=graph),
            title=session_title,
            turn_limit_s=settings.turn_limit_s,
        )
        # Left before the clients close: a turn that outlives its call still has to be stored.
        stack.push_async_callback(runner.aclose)

        def register(server: grpc.aio.Server) -> None:
            add_AgentServiceServicer_to_server(AgentServicer(runner=runner, knowledge=knowledge), server)  # type: ignore[abstract]
            add_KnowledgeServiceServicer_to_server(KnowledgeServicer(knowledge), server)

        limits_s = {
            "/askback.agent.v1.AgentService/Chat": settings.turn_limit_s + _STORING_S,
            "/askback.agent.v1.AgentService/StreamChat": settings.turn_limit_s + _STORING_S,
            "/askback.agent.v1.KnowledgeService/IngestDocument": _INGEST_LIMIT_S,
        }
        yield await stack.enter_async_context(
            running_server(
                options=ServerOptions.from_settings(settings, address=settings.agent_address, limits_s=limits_s),
                register=register,
                service_names=SERVICE_NAMES,
                # Storage is not asked for: a turn outlasts its absence within the lease, and when it is away every
                # agent would be, so that nobody is left to say so.
                ready=knowledge.is_ready,
                wind_down=lambda: runner.stop_all(ShuttingDown()),
            )
        )


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _warm(knowledge: KnowledgeBase) -> None:
    try:
        await knowledge.warm()
    except Exception as error:
        # The first question tries again, and tells what is wrong in its trace.
        log.warning("encoder_not_loaded", error=type(error).__name__)


@asynccontextmanager
async def _opened_knowledge(settings: AgentSettings) -> AsyncIterator[KnowledgeBase]:
    """The index, once its database can be reached: services and their databases are often started together."""
    if not settings.index_url:
        raise StartupError(
            "ASKBACK_KNOWLEDGE_URL must be set; `make run` needs none, and starts an embedded PostgreSQL"
        )
    retrieval = RetrievalSettings(
        top_k=settings.retrieval_top_k,
        candidate_k=settings.retrieval_candidate_k,
        candidate_multiplier=settings.retrieval_candidate_multiplier,
        auto_merge=settings.auto_merge,
        auto_merge_threshold=settings.auto_merge_threshold,
        min_score=settings.rerank_min_score,
    )
    give_up = time.monotonic() + _INDEX_WAIT_S
    async with AsyncExitStack() as stack:
        while True:
            try:
                knowledge = await stack.enter_async_context(open_knowledge(settings.index_url, retrieval))
                break
            except IndexUnusable as error:
                raise StartupError(f"ASKBACK_KNOWLEDGE_URL: {error}") from None
            except KnowledgeUnavailable:
                if time.monotonic() > give_up:
                    raise StartupError("the database at ASKBACK_KNOWLEDGE_URL cannot be reached") from None
            await asyncio.sleep(0.5)
        yield knowledge
