"""What Alembic runs: the missing migrations, on the connection and in the transaction that it is given."""

from alembic import context

from fitserve.store.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
