"""What is known before anyone judges: log lines, messages, commands, machines, engines."""
