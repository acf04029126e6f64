"""Where a command's runs are executed, and how many at a time: the options that say so."""

from typing import Annotated

from tyro.conf import arg

from trimol.cli._values import Maybe, count, typed
from trimol.runs._cluster import cluster

# For the fields ``jobs: Jobs = None`` and ``on: On = None`` of a command's options. What they say
# goes to `trimol.runs.execute_all` as ``jobs=at_a_time(options.jobs, options.on), on=options.on``.
Jobs = Annotated[
    Maybe[int],
    typed(count, "N", unset="cores"),
    arg(help="Runs at a time; by default as many as there are cores, here or on a cluster."),
]
On = Annotated[
    Maybe[str],
    typed(cluster, "CLUSTER", unset="here"),
    arg(
        help="A Ray cluster for the runs: ray://HOST:PORT or HOST:PORT; or ray, for the one of "
        "RAY_ADDRESS, or else one on this machine for the time of the command. Its nodes must "
        "share the folders of the runs, and of your task."
    ),
]
