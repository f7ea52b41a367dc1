"""`python -m pdcluster_operator.cli`: the same as the `pdcluster` command."""

from pdcluster_operator.cli import main

if __name__ == "__main__":
    main()
