"""Keeps the router's list of workers what it should be, and says when the router really routes.

Runs beside the router, in its pod. Whoever runs the cluster (the operator, or `pdcluster up`) puts
the desired list here; the registrar remembers it in a file and re-asserts it for ever: after a
restart of the router, of itself, and while nobody else is there.
"""
