"""pdcluster.control.v1: `control.proto` and the stubs generated from it."""
