"""Evidence on a subject of its own: nothing in the models may depend on the example documents."""

import pytest

from services.agent.schemas import RetrievedChunk


def _chunk(filename: str, text: str) -> RetrievedChunk:
    return RetrievedChunk(filename=filename, text=text, chunk_id=filename, score=0.5)


@pytest.fixture
def espresso_machines() -> list[RetrievedChunk]:
    """Three manuals that say the like of different machines, and a glossary that says it of none."""
    return [
        _chunk(
            "kestrel-guide.md",
            "Kestrel: guide for baristas › Cleaning the Kestrel\n\n"
            "The Kestrel machine is descaled every 3 months. "
            "To empty the drip tray of the Kestrel, pull it out towards you. "
            "The pump of the Kestrel works at 9 bar.",
        ),
        _chunk(
            "heron-guide.md",
            "Heron: guide for baristas › Cleaning the Heron\n\n"
            "The Heron machine is descaled every 6 weeks. "
            "To empty the drip tray of the Heron, press the blue button and lift "
            "the grid. The pump of the Heron works at 15 bar.",
        ),
        _chunk(
            "egret-guide.md",
            "Egret: guide for baristas › Cleaning the Egret\n\n"
            "The Egret machine is descaled every 2 months. "
            "To empty the drip tray of the Egret, open the left door first.",
        ),
        _chunk(
            "glossary.md",
            "Glossary\n\nDescaling: removing limestone from a boiler; every machine has an interval of its own.",
        ),
    ]


@pytest.fixture
def leave_policy() -> list[RetrievedChunk]:
    """One Chinese document whose sections differ by city, and its English twin."""
    return [
        _chunk(
            "leave.zh.md",
            "休假制度\n\n## 北京员工\n\n北京员工的带薪休假为 12 天。北京员工的休假申请由部门经理审批。\n\n"
            "## 成都员工\n\n成都员工的带薪休假为 15 天。成都员工的休假申请由人事主管审批。",
        ),
        _chunk(
            "leave.md",
            "Leave policy\n\n## Beijing staff\n\nStaff in Beijing have 12 days of paid leave.\n\n"
            "## Chengdu staff\n\nStaff in Chengdu have 15 days of paid leave.",
        ),
    ]
