"""``python -m fitserve``: the command line."""

from fitserve.cli import main

if __name__ == "__main__":
    main()
