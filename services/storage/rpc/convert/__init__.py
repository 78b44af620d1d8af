"""Wire to model: a request is validated here, once and whole, and becomes what the store takes."""

from services.storage.rpc.convert.hitl import ListHitlTasks, cancel_hitl_task, list_hitl_tasks, task_name
from services.storage.rpc.convert.messages import append_messages, save_session
from services.storage.rpc.convert.runs import (
    ListRuns,
    append_run_events,
    begin_run,
    finish_run,
    list_runs,
    run_name,
)
from services.storage.rpc.convert.sessions import (
    DeleteMessages,
    ListMessages,
    ListSessions,
    SessionView,
    delete_messages,
    delete_session,
    delete_user_data,
    list_messages,
    list_sessions,
    load_session,
    message_name,
    session_name,
    update_session,
)

__all__ = [
    "DeleteMessages",
    "ListHitlTasks",
    "ListMessages",
    "ListRuns",
    "ListSessions",
    "SessionView",
    "append_messages",
    "append_run_events",
    "begin_run",
    "cancel_hitl_task",
    "delete_messages",
    "delete_session",
    "delete_user_data",
    "finish_run",
    "list_hitl_tasks",
    "list_messages",
    "list_runs",
    "list_sessions",
    "load_session",
    "message_name",
    "run_name",
    "save_session",
    "session_name",
    "task_name",
    "update_session",
]
