"""The operator side of pdcluster: specification, planning, rendering, runtimes, command line."""
