"""A setting that names a PostgreSQL."""

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

# As far as it can be told without the driver: several hosts may be named, and any of it may be left to the query.
_HOST = r"(\[[0-9a-fA-F:.]+\]|[^\s:/?#@\[\],]*)(:[0-9]{1,5})?"
_URL = re.compile(rf"postgres(ql(\+asyncpg)?)?://([^\s/?#]*@)?{_HOST}(,{_HOST})*([/?]\S*)?")


def _checked(url: SecretStr) -> SecretStr:
    value = url.get_secret_value()
    if value.startswith("milvus://"):
        raise ValueError("must be postgresql://…; milvus:// is not supported by this version")
    if not _URL.fullmatch(value):
        raise ValueError(
            "must be postgresql://user:password@host:port/database; "
            "`make run` needs none, and starts an embedded PostgreSQL"
        )
    return url


PostgresUrl = Annotated[SecretStr, AfterValidator(_checked)]
