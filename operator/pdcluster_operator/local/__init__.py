"""Run a PDCluster on this machine: the local kubelet, and the loop that keeps a cluster up."""
