"""How a decode worker finds the scheduler behind a bootstrap address, never blocking on it."""
