"""The networks of dense prediction: the dilated ResNet against the strided one, DeepLab's head."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from trimol.paper._dense.models import (
    ASPP,
    Dense,
    DilatedResNet50,
    SmallTrunk,
    checked_size,
    deeplab_head,
    dense_model,
    dilate,
    small_head,
)
from trimol.paper.tasks.scenes import Scenes

transformers = pytest.importorskip("transformers")


def resnet(kind: str, *, early: bool = False):
    """A narrow ResNet whose normalisation does something, in float64."""
    config = transformers.ResNetConfig(
        embedding_size=4,
        hidden_sizes=[8, 8, 12, 16],
        depths=[1, 2, 3, 2],
        layer_type=kind,
        downsample_in_bottleneck=early,
    )
    torch.manual_seed(0)
    model = transformers.ResNetModel(config).double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
    return model


@pytest.mark.parametrize("size", [(64, 96), (50, 71)], ids=str)
@pytest.mark.parametrize("kind", ["bottleneck", "basic", "early"])
def test_every_fourth_pixel_is_one_of_the_strided_network(kind: str, size: tuple[int, int]) -> None:
    strided = resnet("bottleneck", early=True) if kind == "early" else resnet(kind)
    dilated = dilate(deepcopy(strided))
    x = torch.randn(1, 3, *size, dtype=torch.float64)
    coarse, fine = strided(x).last_hidden_state, dilated(x).last_hidden_state
    assert fine.shape[2:] == tuple(-(-side // 8) for side in size)
    assert coarse.shape[2:] == tuple(-(-side // 32) for side in size)
    torch.testing.assert_close(fine[..., ::4, ::4], coarse)


def test_resnet50_by_definition() -> None:
    network = DilatedResNet50(pretrained=False)
    three = [
        [
            (module.stride, module.dilation, module.padding)
            for module in stage.modules()
            if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)
        ]
        for stage in network.resnet.encoder.stages
    ]

    def conv(reach: int, stride: int = 1):
        return ((stride, stride), (reach, reach), (reach, reach))

    assert three == [
        [conv(1)] * 3,
        [conv(1, stride=2), *[conv(1)] * 3],
        [conv(1), *[conv(2)] * 5],
        [conv(2), *[conv(4)] * 2],
    ]
    plain = transformers.ResNetModel(transformers.ResNetConfig())
    shapes = {name: tensor.shape for name, tensor in plain.state_dict().items()}
    assert {n: t.shape for n, t in network.resnet.state_dict().items()} == shapes
    network.resnet.load_state_dict(plain.state_dict())  # strict: every weight by its name
    features = network.eval()(torch.zeros(1, 3, 33, 40))
    assert features.shape == (1, network.channels, 5, 5)


def test_the_head_is_deeplab_s() -> None:
    head = deeplab_head(2048, 13)
    aspp = head[0]
    assert isinstance(aspp, ASPP)
    convolutions = [m for m in head.modules() if isinstance(m, nn.Conv2d)]
    assert [
        (c.in_channels, c.out_channels, c.kernel_size[0], c.dilation[0]) for c in convolutions
    ] == [
        (2048, 256, 1, 1),
        (2048, 256, 3, 12),
        (2048, 256, 3, 24),
        (2048, 256, 3, 36),
        (2048, 256, 1, 1),
        (1280, 256, 1, 1),
        (256, 256, 3, 1),
        (256, 13, 1, 1),
    ]
    # No bias but in the last; batch normalisation (2 × 256) after each of the other seven.
    weights = 2048 * 256 * (1 + 3 * 9 + 1) + 1280 * 256 + 256 * 256 * 9 + 256 * 13 + 13
    assert sum(p.numel() for p in head.parameters()) == weights + 7 * 2 * 256
    assert [m.p for m in head.modules() if isinstance(m, nn.Dropout)] == [0.5]


def test_aspp_sees_as_far_as_its_rates_say() -> None:
    torch.manual_seed(1)
    branches = ASPP(1, width=2, rates=(2, 5)).eval().branches
    for branch, reach in zip(branches[:-1], (0, 2, 5), strict=True):
        x = torch.zeros(1, 1, 15, 15, requires_grad=True)
        branch[0](x)[..., 7, 7].sum().backward()
        rows = x.grad[0, 0].abs().sum(1).nonzero().flatten().tolist()
        assert rows == sorted({7 - reach, 7, 7 + reach})


def test_image_pooling_is_the_same_everywhere() -> None:
    pooling = ASPP(3, width=4).eval().branches[-1]
    found = pooling(torch.randn(2, 3, 6, 7))
    assert found.shape == (2, 4, 6, 7)
    assert torch.equal(found, found[..., :1, :1].expand_as(found))


def test_outputs_have_the_image_s_size_and_normals_unit_length() -> None:
    torch.manual_seed(2)
    model = dense_model(["segmentation", "depth", "normals"], 13, "small", pretrained=False)
    x = torch.rand(2, 3, 21, 34)
    found = model(x)
    assert {name: out.shape[1] for name, out in found.items()} == {
        "segmentation": 13,
        "depth": 1,
        "normals": 3,
    }
    assert all(out.shape[2:] == x.shape[2:] for out in found.values())
    torch.testing.assert_close(found["normals"].norm(dim=1), torch.ones(2, 21, 34))
    model.eval()
    assert torch.equal(model(x, "depth"), model(x)["depth"])


def test_only_the_objectives_wanted_have_heads() -> None:
    assert list(dense_model(["depth"], 13, "small", pretrained=False).heads) == ["depth"]


def test_the_small_network_trains_on_single_images() -> None:
    trunk = SmallTrunk()
    model = Dense(trunk, {"depth": small_head(trunk.channels, 1)})
    assert model.train()(torch.rand(1, 3, 16, 16))["depth"].isfinite().all()
    assert trunk(torch.rand(1, 3, 48, 64)).shape == (1, trunk.channels, 12, 16)


def test_the_whole_network_at_a_small_size() -> None:
    torch.manual_seed(3)
    model = dense_model(["depth", "normals"], 13, "resnet50", pretrained=False)
    found = model.train()(torch.rand(2, 3, 32, 40))
    assert found["depth"].shape == (2, 1, 32, 40)
    assert found["normals"].isfinite().all()


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="backbone must be 'resnet50' or 'small', found 'vgg'"):
        Scenes(backbone="vgg")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="image_size must be height and width, found 48"):
        checked_size(48)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="image_size must be a whole number of at least 8"):
        checked_size((4, 64))
