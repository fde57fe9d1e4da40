"""Takes the lines of a log apart: what a process wrote, without what loggers, terminals and platforms put around it."""
