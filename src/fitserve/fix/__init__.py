"""The loop from a failing launch to a proven one."""
