"""The study: what is tried next, in which process, under which limits."""
