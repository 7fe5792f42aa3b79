"""``python -m colobus``: the same as the program ``colobus``."""

from colobus.cli.main import main

if __name__ == "__main__":
    main()
