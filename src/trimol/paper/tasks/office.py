"""Office-31 and Office-Home: the objects of an office in several domains, one objective each.

Two regimes share all the code. In ``"finetune"``, the paper's, the whole network is trained on
images. In ``"frozen"`` the backbone's features are computed once and kept, and the neck (the shared
trunk) and the heads are trained on them: minutes on two processors.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import nonnegative, one_of, whole_number
from trimol.data import IndependentDraws
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData
from trimol.paper import _backbones as backbones
from trimol.paper._data import arrays
from trimol.paper._data.arrays import Images, Watch
from trimol.tasks._settings import read_settings
from trimol.tasks.multitask import MultiInput, MultiTask
from trimol.tasks.task import Batch, Data, Settings

Regime = Literal["frozen", "finetune"]
SPLITS = ("train", "val", "test")
HIDDEN = 512


class Neck(nn.Sequential):
    """What all domains share behind the backbone: one hidden layer of 512.

    Linear (weights from N(0, 0.005²), biases 0.1), batch normalisation, ReLU, dropout of one half.

    Args:
        width: Features of an image.

    Example:
        >>> Neck(1280)(torch.zeros(2, 1280)).shape
        torch.Size([2, 512])
    """

    def __init__(self, width: int) -> None:
        linear = nn.Linear(width, HIDDEN)
        nn.init.normal_(linear.weight, std=0.005)
        nn.init.constant_(linear.bias, 0.1)
        super().__init__(linear, nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Dropout(0.5))


def _listing(path: Path, classes: int) -> list[tuple[str, int]]:
    """The images of one domain in one split, each with its class: a line each of the file."""
    images = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isascii() or not label.isdigit() or int(label) >= classes:
            raise BadData(
                f"line {number} of {path} must be the name of an image and a class below "
                f"{classes}, found {line!r}"
            )
        images.append((name, int(label)))
    if not images:
        raise BadData(f"{path} must list images, found none")
    return images


class Office(MultiInput):
    """Objects told apart in several domains by one network with a head for each domain.

    A backbone, its average pool and the `Neck` are shared (in the frozen regime: the neck); each
    domain has one linear layer. Cross-entropy and accuracy for each domain; Adam without a
    schedule; no augmentation. An epoch is as long as the longest domain, shorter ones begin again.

    The images are looked for where ``trimol data`` puts them; they are decoded once, and their
    features computed once (`trimol.paper._data.arrays`).

    Step sizes are the paper's for Static, MGDA and MoDo (its hyper-parameters for Office); other
    methods, for which it states none, start from the same: it is also LibMTL's default, from which
    the paper departs only where it says so.

    Args:
        regime: ``"frozen"`` trains on features that are computed once; ``"finetune"`` all of it.
        backbone: ``"mobilenet_v2"``, ``"resnet18"`` (the paper's) or ``"resnet50"``.
        pretrained: Whether the backbone starts from its official ImageNet weights.
        image_size: Height and width of the images in pixels.
        weight_decay: Adam's. The paper tunes it for each method (1e-7 … 1e-3).
        only: Train and measure this domain alone: the single-task baseline, by the same code.
    """

    classes: ClassVar[int]
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "office")

    def __init__(
        self,
        *,
        regime: Regime = "frozen",
        backbone: str = "mobilenet_v2",
        pretrained: bool = True,
        image_size: int = 224,
        weight_decay: float = 1e-5,
        only: str | None = None,
    ) -> None:
        one_of("regime", regime, get_args(Regime))
        self.width = backbones.width(backbone)
        self.regime, self.backbone, self.pretrained = regime, backbone, pretrained
        self.image_size = whole_number("image_size", image_size, least=32)
        self.weight_decay = nonnegative("weight_decay", weight_decay)
        self.domains = self.objectives
        super().__init__(only=only)
        if regime == "finetune":
            self.at_once = 64

    def model(self) -> MultiTask:
        """The shared trunk (the neck; with the backbone where it is trained) and the heads."""
        trunk: nn.Module = Neck(self.width)
        if self.regime == "finetune":
            trunk = nn.Sequential(
                backbones.load(self.backbone, pretrained=self.pretrained), Neck(self.width)
            )
        return MultiTask(trunk, {name: nn.Linear(HIDDEN, self.classes) for name in self.objectives})

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam with weight decay (in the gradient, as in the paper), in one pass over memory."""
        return Adam(params, lr=lr, weight_decay=self.weight_decay, fused=True)

    def sampler(self, data: Data, batch_size: int, *, growth: float, seed: int) -> IndependentDraws:
        """As many samples of every domain at every step, at least 4.

        Batch normalisation needs two a draw, and some methods take two draws.
        """
        whole_number("batch_size", batch_size, least=4)
        return super().sampler(data, batch_size, growth=growth, seed=seed)

    def data(self) -> Data:
        """Features or images (uint8), labels, domains; those of ``only``, where it is given."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        rows = self.prepare()
        train, validation, test = (self._part(rows, split) for split in SPLITS)
        return Data(train=train, validation=validation, test=test)

    def prepare(self, watch: Watch | None = None) -> Tensor:
        """What the images are for this regime, computed unless it has been: features or pixels.

        A row for every image: all of the training split by domain, then of the validation split,
        then of the test split.
        """
        names = [name for listed in self._listings.values() for name, _ in listed]
        images = Images(self._root, names, size=self.image_size)
        if self.regime == "finetune":
            return images.pixels(watch)
        return arrays.features(
            images,
            lambda: backbones.frozen(self.backbone, pretrained=self.pretrained),
            weights=backbones.identity(self.backbone, pretrained=self.pretrained),
            width=self.width,
            watch=watch,
        )

    @cached_property
    def _root(self) -> Path:
        return datasets.locate(self.name, f"splits/{self.domains[0]}_{SPLITS[0]}.txt").parent.parent

    @cached_property
    def _listings(self) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """By split and domain, in this order: whatever is wanted is then one piece of it."""
        return {
            (split, domain): _listing(
                datasets.locate(self.name, f"splits/{domain}_{split}.txt"), self.classes
            )
            for split in SPLITS
            for domain in self.domains
        }

    def _part(self, rows: Tensor, split: str) -> Batch:
        """The rows (a view), labels and domains of a split, for the objectives."""
        wanted = [self._listings[split, name] for name in self.objectives]
        labels = torch.tensor([label for listed in wanted for _, label in listed])
        sizes = torch.tensor([len(listed) for listed in wanted])
        before = takewhile(lambda place: place != (split, self.objectives[0]), self._listings)
        first = sum(len(self._listings[place]) for place in before)
        domain = torch.arange(len(wanted)).repeat_interleave(sizes)
        return rows[first : first + len(labels)], labels, domain


class Office31(Office):
    """31 classes of objects as seen by Amazon's shop, a DSLR camera and a webcam: 4 110 images.

    See `Office` for the network and the options.

    Reference:
        Saenko et al., Adapting Visual Category Models to New Domains, ECCV 2010.
    """

    name: ClassVar[str] = "office-31"
    objectives = ("amazon", "dslr", "webcam")
    classes: ClassVar[int] = 31


class OfficeHome(Office):
    """65 classes of objects as art, clip art, product shots and photographs: 15 588 images.

    See `Office` for the network and the options.

    Reference:
        Venkateswara et al., Deep Hashing Network for Unsupervised Domain Adaptation, CVPR 2017.
    """

    name: ClassVar[str] = "office-home"
    objectives = ("Art", "Clipart", "Product", "Real_World")
    classes: ClassVar[int] = 65
