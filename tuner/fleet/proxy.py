"""Serve a study's database to workers that have no driver: ``python -m tuner.fleet.proxy ADDRESS``."""

import argparse
import sys

from tuner.cli.options import note, print_line
from tuner.errors import TunerError
from tuner.search.shared.address import PROXY_PORT, read_address
from tuner.search.shared.proxy import serve_proxy


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner.fleet.proxy", description=__doc__)
    parser.add_argument("address", help="the database, such as postgresql://host/db")
    parser.add_argument("--host", default="localhost", help="address to listen on: whoever reaches it may write")
    parser.add_argument("--port", type=int, default=PROXY_PORT)
    options = parser.parse_args(arguments)
    try:
        serve_proxy(read_address(options.address), options.host, options.port, print_line)
    except TunerError as error:
        note(f"tuner: {error}")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
