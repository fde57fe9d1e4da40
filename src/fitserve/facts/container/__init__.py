"""Containers around a launch: ``docker run``, and services of a compose file."""

from fitserve.facts.container.compose import Compose, find_compose
from fitserve.facts.container.run import Container, find_container
from fitserve.facts.container.service import Service, read_service

__all__ = ["Compose", "Container", "Service", "find_compose", "find_container", "read_service"]
