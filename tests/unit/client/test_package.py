import pytest

import askback.client
from askback.client.channel import CHANNEL_OPTIONS, target_of


def test_the_public_names_are_these() -> None:
    public = {name: getattr(askback.client, name) for name in askback.client.__all__}
    assert {name for name, kind in public.items() if not issubclass(kind, askback.client.AskbackError)} == {
        "AgentClient",
        "FieldViolation",
        "KnowledgeClient",
        "StorageClient",
        "Stream",
    }


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("127.0.0.1:50051", "dns:///127.0.0.1:50051"),
        ("agent.example:50051", "dns:///agent.example:50051"),
        ("unix:/run/askback.sock", "unix:/run/askback.sock"),
        ("10.0.0.1:1, 10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("[::1]:1,[::2]:2", "ipv6:[::1]:1,[::2]:2"),
        ("dns:///agent:1", "dns:///agent:1"),
    ],
)
def test_an_address_becomes_a_target(address: str, target: str) -> None:
    assert target_of(address) == target


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        "localhost:",
        "localhost:65536",
        "a:0",
        "::1",
        "http://a:1",
        "10.0.0.1:1,",
        "a:1,b:2",
        "10.0.0.1:1,[::1]:2",
        "10.0.0.1:1,b:2",
    ],
)
def test_an_address_that_cannot_be_reached_as_one_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        target_of(address)


def test_each_channel_option_is_set_once() -> None:
    names = [name for name, _ in CHANNEL_OPTIONS]
    assert len(set(names)) == len(names)
