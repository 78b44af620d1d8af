"""What a run can be asked for."""

from pathlib import Path

import pytest

from benchmarks.options import PARTS, read_options
from benchmarks.subjects.registry import OURS, RAW, REGISTRY


def test_a_run_measures_everything_unless_told_otherwise() -> None:
    options = read_options([])
    assert tuple(options.only) == PARTS
    assert tuple(options.subjects) == tuple(REGISTRY)
    assert (tuple(options.sizes), tuple(options.callers)) == ((10, 100, 1_000, 10_000), (1, 16, 64))


def test_ours_is_in_every_comparison() -> None:
    assert tuple(read_options(["--subjects", RAW]).subjects) == (OURS, RAW)


def test_a_quick_run_still_heeds_what_else_is_said() -> None:
    assert tuple(read_options(["--quick", "--sizes", "10"]).sizes) == (10,)


@pytest.mark.parametrize(
    "arguments",
    [["--only", "nothing"], ["--subjects", "nobody"], ["--sizes", "0"], ["--json", "no/such/folder/file.json"]],
)
def test_what_cannot_be_measured_is_refused_at_once(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        read_options(arguments)
