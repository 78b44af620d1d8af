"""Models over any OpenAI-compatible endpoint.

Importing it loads the client library, which takes a second or two: only where an endpoint is configured.
"""

from services.agent.models.openai_compatible.endpoint import EndpointModels, EndpointSettings, open_endpoint

__all__ = ["EndpointModels", "EndpointSettings", "open_endpoint"]
