"""Generates the Python code of protos/ into clients/python, or with --check holds that it is fresh.

The check also lints the protos, and holds that they break no one who was built against those before.
Only `*_service.proto` goes through the gRPC plugin.
"""

import argparse
import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
CLIENT = ROOT / "clients" / "python"
BIN = Path(sys.executable).parent


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT)


def generate(target: Path) -> None:
    protos = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    services = [name for name in protos if name.endswith("_service.proto")]
    protoc = (sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}")
    run(
        *protoc,
        f"--plugin=protoc-gen-mypy={BIN / 'protoc-gen-mypy'}",
        f"--python_out={target}",
        f"--mypy_out=quiet,readable_stubs:{target}",
        *protos,
    )
    run(
        *protoc,
        f"--plugin=protoc-gen-mypy_grpc={BIN / 'protoc-gen-mypy_grpc'}",
        f"--grpc_python_out={target}",
        f"--mypy_grpc_out=quiet:{target}",
        *services,
    )


def generated_files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*_pb2*.py*") if path.suffix in {".py", ".pyi"}}


def replace_generated() -> None:
    for path in generated_files(CLIENT):
        (CLIENT / path).unlink()
    generate(CLIENT)
    for path in generated_files(CLIENT):
        for folder in (CLIENT / path).relative_to(CLIENT).parents:
            if folder != Path("."):
                (CLIENT / folder / "__init__.py").touch()


def stale_files() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, committed = generated_files(Path(folder)), generated_files(CLIENT)
        return sorted(
            str(path)
            for path in fresh | committed
            if path not in fresh
            or path not in committed
            or not filecmp.cmp(Path(folder) / path, CLIENT / path, shallow=False)
        )


def released_api() -> str | None:
    """The commit that the API must not break: the newest release's, before the first one that of the first protos."""
    for command in (
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"],
        ["git", "log", "--reverse", "--diff-filter=A", "--format=%H", "--", "protos/buf.yaml"],
    ):
        found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if found.returncode == 0 and (names := found.stdout.split()):
            return names[0]
    return None


def check_api() -> None:
    buf = BIN / "buf"
    run(buf, "lint", PROTOS)
    if (commit := released_api()) is not None:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "archive", commit, "protos"], check=True, capture_output=True, cwd=ROOT)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            run(buf, "breaking", PROTOS, "--against", Path(folder) / "protos")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the code is not fresh")
    if not parser.parse_args().check:
        replace_generated()
        return
    if stale := stale_files():
        sys.exit("Not what protos/ give; run `make proto`:\n  " + "\n  ".join(stale))
    try:
        check_api()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
