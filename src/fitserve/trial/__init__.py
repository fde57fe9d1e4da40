"""One start of a server: launched, watched, ended, described."""
