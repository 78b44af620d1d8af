"""Whom the embedded servers run as: root's servers run as an ordinary user, since PostgreSQL refuses root."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from services.local.errors import LocalError


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


def server_account(data: Path) -> Account | None:
    """The account for a server whose data lie in `data`; None where it runs as its starter."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (found := data.stat()).st_uid != 0:
        # Data that were begun by an ordinary user stay that user's.
        return Account(found.st_uid, found.st_gid)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise LocalError(
            "The embedded servers do not run as root, and there is no user `nobody` to run them as; start as an "
            "ordinary user, or set ASKBACK_DATABASE_URL and ASKBACK_REDIS_URL to servers of your own"
        ) from None
    return Account(nobody.pw_uid, nobody.pw_gid)


def check_that_we_have_a_name() -> None:
    """LocalError where the machine knows no name for our uid: PostgreSQL will not make a database then."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise LocalError(
            f"PostgreSQL runs only as a user that has a name, and uid {os.geteuid()} has none here; start as another "
            "user, or set ASKBACK_DATABASE_URL to a server of your own"
        ) from None


def make_private_folder(path: Path, account: Account | None) -> None:
    """Makes the folder, mode 700, and gives it to the account."""
    path.mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        os.chown(path, account.uid, account.gid)
