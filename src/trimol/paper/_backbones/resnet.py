"""ResNet-18 and ResNet-50, with the official weights by their names on the Hugging Face hub.

Reference:
    He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from trimol._extras import require
from trimol.paper._data.datasets import BadData, MissingData


@dataclass(frozen=True)
class ResNet:
    """One of the family.

    Attributes:
        hub: Its name on the hub.
        depths: Blocks of each stage.
        widths: Channels of each stage; the last is the number of features.
        block: ``"basic"`` (two 3×3 convolutions) or ``"bottleneck"`` (1×1, 3×3, 1×1).
    """

    hub: str
    depths: tuple[int, int, int, int]
    widths: tuple[int, int, int, int]
    block: str

    def build(self, *, pretrained: bool) -> nn.Module:
        """The network, with the official weights or with random ones.

        Args:
            pretrained: Whether to load the official weights, from the hub or its local cache.

        Raises:
            MissingData: The weights are not to be had.
        """
        library: Any = require("transformers", extra="vision", purpose="the ResNet backbones")
        if pretrained:
            return self._official(library.ResNetModel)
        config = library.ResNetConfig(
            depths=self.depths, hidden_sizes=self.widths, layer_type=self.block
        )
        network: nn.Module = library.ResNetModel(config)
        return network

    def _official(self, model: Any) -> nn.Module:
        try:
            network, report = model.from_pretrained(self.hub, output_loading_info=True)
        except OSError as error:
            raise MissingData(
                f"the official weights {self.hub} are neither in the local cache nor to be had "
                f"from the hub ({str(error).partition(chr(10))[0]}): connect to the network, or "
                "take pretrained=False (--option pretrained=false) for random weights"
            ) from error
        if report["missing_keys"]:
            raise BadData(f"the weights {self.hub} lack {min(report['missing_keys'])!r}")
        official: nn.Module = network
        return official


RESNET18 = ResNet("microsoft/resnet-18", (2, 2, 2, 2), (64, 128, 256, 512), "basic")
RESNET50 = ResNet("microsoft/resnet-50", (3, 4, 6, 3), (256, 512, 1024, 2048), "bottleneck")
