"""Laws here read whole logs: no example of them is hurried."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
