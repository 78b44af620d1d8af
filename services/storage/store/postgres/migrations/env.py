"""What alembic runs the migrations with: the connection, and the transaction, of whoever called it."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="alembic_version_storage",
)
with context.begin_transaction():
    context.run_migrations()
