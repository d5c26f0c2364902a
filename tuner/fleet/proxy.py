"""Serve a study's database to workers that have no driver: ``python -m tuner.fleet.proxy ADDRESS``."""

import argparse
import os
import sys

from tuner.cli.options import note, print_line
from tuner.commands.sharing import warn_of_password
from tuner.errors import TunerError, UsageError
from tuner.search.shared.address import PROXY_PORT, read_address
from tuner.search.shared.proxy import serve_proxy

VARIABLE = "TUNER_RUN_STUDY"


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner.fleet.proxy", description=__doc__)
    parser.add_argument(
        "address",
        nargs="?",
        default=os.environ.get(VARIABLE),
        help=f"the database, such as postgresql://host/db [default: the variable {VARIABLE}]",
    )
    parser.add_argument("--host", default="localhost", help="address to listen on: whoever reaches it may write")
    parser.add_argument("--port", type=int, default=PROXY_PORT)
    options = parser.parse_args(arguments)
    if not options.address:
        parser.error(f"give the address of the database, or set {VARIABLE}")
    try:
        address = read_address(options.address)
        if address.is_proxy:
            raise UsageError("the address must be that of a database, got that of a proxy: correct it")
        warn_of_password(address, note)
        serve_proxy(address, options.host, options.port, print_line)
    except TunerError as error:
        note(f"tuner: {error}")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
