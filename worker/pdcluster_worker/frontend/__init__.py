"""HTTP to clients: parses requests, tokenizes, talks to the scheduler, detokenizes and answers."""
