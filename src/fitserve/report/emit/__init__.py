"""A command that serves, written for where it will run: vLLM's config file, compose, Kubernetes, systemd."""
