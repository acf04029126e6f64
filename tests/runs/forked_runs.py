"""Runs configurations in processes that start at once: everything is imported before they fork.

Says ``ready``, then reads lines of JSON. ``{"configs": […], "folder": …}`` is answered with the id
of a child process that executes them (resuming), ``{"wait": id}`` with the exit code of that child.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import accelerate.utils
import torch

from trimol import simplex, tasks
from trimol.runs import RunConfig, execute, execute_all


def child(order: dict[str, Any]) -> None:
    try:
        configs = [RunConfig.model_validate(config) for config in order["configs"]]
        if len(configs) == 1:
            execute(configs[0], Path(order["folder"]), resume=True)
        else:
            folders = [Path(order["folder"]) / str(config.seed) for config in configs]
            execute_all(list(zip(configs, folders, strict=True)))
    except BaseException:  # noqa: BLE001 (a child must not go on as its parent)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    # Imported when first used: accelerate, scikit-learn, scipy's solver, torch's compiler.
    accelerate.PartialState()
    tasks.load("digits").data()
    simplex.min_norm(torch.eye(3, dtype=torch.float64))
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                child(order)
        print(answer, flush=True)


if __name__ == "__main__":  # the tests import this file when they look for examples in it
    main()
