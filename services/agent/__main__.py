import sys

from services.agent.server import agent_server
from services.agent.settings import AgentSettings
from services.runtime.process import main

if __name__ == "__main__":
    sys.exit(main(agent_server, settings=AgentSettings, service="agent"))
