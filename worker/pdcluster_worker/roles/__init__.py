"""The scheduler process: the loop, its sockets, and the executor of the pipeline's effects."""
