"""What every other package stands on: errors, clock, ports, settings."""
