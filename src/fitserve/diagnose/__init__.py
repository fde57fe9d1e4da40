"""From the facts of a log to its first cause, with evidence, arithmetic and advice."""
