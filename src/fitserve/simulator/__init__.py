"""A simulated engine: programs that behave as vLLM of a chosen release on a chosen device, without the device.

It knows nothing of the planner, the memory model, the catalogue of messages or the diagnosis: its lines are written from vLLM's
sources, its memory from measured starts. So what those say about it is a test of them.
"""
