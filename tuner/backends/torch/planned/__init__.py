"""The planned executor: a traced step as code that stays at the planned peak of memory."""
