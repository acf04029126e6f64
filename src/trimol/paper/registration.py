"""What the paper announces to the library: its tasks and its commands, by name."""

_TASKS = "trimol.paper.tasks"
TASKS = {
    "mnist": f"{_TASKS}.mnist:MNIST",
    "fashion": f"{_TASKS}.mnist:Fashion",
    "toy": f"{_TASKS}.toy:Toy",
    "stability-lower-bound": f"{_TASKS}.lower_bound:StabilityLowerBound",
    "office-31": f"{_TASKS}.office:Office31",
    "office-home": f"{_TASKS}.office:OfficeHome",
    "scenes": f"{_TASKS}.scenes:Scenes",
    "nyuv2": f"{_TASKS}.nyuv2:NYUv2",
}
COMMANDS = {
    "reproduce": "trimol.paper._commands.reproduce",
}
