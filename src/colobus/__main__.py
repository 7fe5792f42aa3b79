"""The program ``colobus``, and ``python -m colobus``."""

import os
import signal


def main() -> None:
    """Run the command line; Ctrl-C while its modules are imported ends it with a line, too."""
    signal.signal(signal.SIGINT, lambda *_: os.write(2, b"colobus: stopped\n") and os._exit(130))
    from colobus.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
