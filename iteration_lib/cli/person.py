"""Who gives a command?"""

from __future__ import annotations

import getpass
import os
import socket


def this_person() -> str:
    """Name who gives the command: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
