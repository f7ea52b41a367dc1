"""`python -m pdcluster_operator.cli`: the same as the `pdcluster` command."""

from pdcluster_operator.cli.app import main

if __name__ == "__main__":
    main()
