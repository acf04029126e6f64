"""Generated rooms: the geometry, checked without the ray caster; withheld labels; learning."""

import numpy as np
import pytest
import torch

from trimol import methods
from trimol.paper._dense import rooms
from trimol.paper._dense.rooms import CLASSES, Room
from trimol.paper.tasks.scenes import Scenes
from trimol.training import assess, start, train

HEIGHT, WIDTH = 24, 32
SEEDS = range(12)


def drawn(seed: int) -> tuple[Room, np.ndarray, np.ndarray, np.ndarray]:
    room = rooms.draw_room(np.random.default_rng(seed))
    return room, *rooms.cast_rays(room, HEIGHT, WIDTH)


def points(room: Room, depth: np.ndarray) -> np.ndarray:
    """The points of the world at these depths."""
    seen = rooms.rays(HEIGHT, WIDTH) * depth[..., None]
    return room.camera.position + seen @ room.camera.axes.T


def inside(box: rooms.Box, place: np.ndarray) -> np.ndarray:
    """How deep in a box points are, along each of its axes: negative outside."""
    return box.half - np.abs((place - box.centre) @ box.axes)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_ray_hits_the_surface_that_its_label_names(seed: int) -> None:
    room, label, depth, normal = drawn(seed)
    assert np.isfinite(depth).all()
    assert (depth > 0).all()
    place, facing = points(room, depth), normal @ room.camera.axes.T
    on = {
        "floor": np.isclose(place[..., 2], 0) & np.isclose(facing[..., 2], 1),
        "ceiling": np.isclose(place[..., 2], room.size[2]) & np.isclose(facing[..., 2], -1),
        "wall": np.zeros_like(label, bool),
        **{kind: np.zeros_like(label, bool) for kind in rooms.BOXES},
    }
    for axis in (0, 1):
        on["wall"] |= np.isclose(place[..., axis], 0) & np.isclose(facing[..., axis], 1)
        far = np.isclose(place[..., axis], room.size[axis])
        on["wall"] |= far & np.isclose(facing[..., axis], -1)
    for box in room.boxes:
        depths = inside(box, place)
        local, outward = (place - box.centre) @ box.axes, facing @ box.axes
        for axis in range(3):
            face = np.isclose(depths[..., axis], 0) & (depths > -1e-9).all(-1)
            face &= np.isclose(outward[..., axis], np.sign(local[..., axis]))
            on[CLASSES[box.kind]] |= face
    for number, name in enumerate(CLASSES):
        assert on[name][label == number].all(), name


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_in_front_of_what_is_seen(seed: int) -> None:
    room, _, depth, _ = drawn(seed)
    for share in np.linspace(0, 0.999, 60):
        place = points(room, depth * share)
        assert ((place > 0) & (place < room.size)).all()
        for box in room.boxes:
            assert not (inside(box, place) > 1e-9).all(-1).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_normals_are_those_of_the_depth(seed: int) -> None:
    _, _, depth, normal = drawn(seed)
    seen = rooms.rays(HEIGHT, WIDTH) * depth[..., None]  # in camera coordinates
    across, down = seen[1:-1, 2:] - seen[1:-1, :-2], seen[2:, 1:-1] - seen[:-2, 1:-1]
    found = np.cross(down, across)  # x right, y down, z forward: this way round to the camera
    found /= np.linalg.norm(found, axis=-1, keepdims=True)
    here = normal[1:-1, 1:-1]
    offset = (here * seen[1:-1, 1:-1]).sum(-1)
    interior = np.ones(offset.shape, bool)  # of a plane: the four neighbours lie in it, too
    for rows, columns in ((1, 0), (1, 2), (0, 1), (2, 1)):
        near = np.s_[rows : rows + HEIGHT - 2, columns : columns + WIDTH - 2]
        interior &= np.isclose((here * seen[near]).sum(-1), offset)
        interior &= np.isclose(normal[near], here).all(-1)
    assert interior.mean() > 0.5
    np.testing.assert_allclose(found[interior], here[interior], atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=-1), 1)
    assert ((normal * seen).sum(-1) < 0).all()  # towards the camera


def test_a_box_straight_ahead_by_hand() -> None:
    """A cube with its face 2 m ahead of a camera that looks along x, from (1, 2, 1)."""
    room = Room(
        size=np.array([6.0, 4.0, 3.0]),
        boxes=(rooms.Box(6, np.array([3.5, 2.0, 1.0]), np.full(3, 0.5), 0.0),),
        camera=rooms.Camera(np.array([1.0, 2.0, 1.0]), rooms.camera_axes(0.0, 0.0, 0.0)),
        lamp=np.array([1.0, 2.0, 1.0]),
        albedo=np.ones((len(CLASSES), 3)),
    )
    label, depth, normal = rooms.cast_rays(room, 41, 41)
    # The focal length is 20.5 / tan 30° pixels; the cube's half side at 2 m is ¼ of it: 8.9 pixels.
    assert np.array_equal(np.flatnonzero(label[20] == 6), np.arange(20 - 8, 20 + 9))
    assert depth[20, 20] == pytest.approx(2)
    assert depth[20, 28] == pytest.approx(2)  # along z, not along the ray
    np.testing.assert_allclose(normal[20, 20], [0, 0, -1], atol=1e-12)
    assert CLASSES[label[0, 20]] == "ceiling"
    assert CLASSES[label[40, 20]] == "floor"
    # 1 m below the camera, 20 pixels below the middle: f / 20 away.
    assert depth[40, 20] == pytest.approx(20.5 / np.tan(np.pi / 6) / 20)
    np.testing.assert_allclose(normal[40, 20], [0, -1, 0], atol=1e-12)
    assert CLASSES[label[20, 0]] == "wall"
    # The lamp is in the camera: the face is lit at a right angle, and everything at least ambient.
    image = rooms.paint(room, label, depth, normal)
    np.testing.assert_allclose(image[20, 20], 1)
    assert image.min() >= rooms.AMBIENT


def tiny(**options) -> Scenes:
    given = {"image_size": (24, 32), "train": 24, "validation": 4, "test": 8, **options}
    return Scenes(**given)


def test_data_is_named_by_the_seed() -> None:
    one, again, other = tiny().data(), tiny().data(), tiny(seed=1).data()
    for a, b in zip(one.train, again.train, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.train[0], other.train[0])
    assert torch.equal(tiny(train=5).data().test[2], one.test[2])  # whatever the others are


def test_splits_have_different_rooms() -> None:
    data = tiny().data()
    assert data.validation is not None
    images = [image for part in (data.train, data.validation, data.test) for image in part[0]]
    assert len({image.numpy().tobytes() for image in images}) == 24 + 4 + 8
    assert tiny(validation=0).data().validation is None


def test_images_are_images() -> None:
    image, label, depth, normal = tiny().data().test
    assert (image.dtype, label.dtype) == (torch.float32, torch.int64)
    assert image.min() >= 0
    assert image.max() <= 1
    assert image.is_contiguous()
    assert depth.min() > 0.2
    assert depth.max() < 10
    assert label.min() >= 0
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(8, 24, 32))


def test_every_class_is_seen() -> None:
    label = tiny(missing=0.0, holes=0.0).data().train[1]
    assert (label.flatten().bincount(minlength=len(CLASSES)) > 50).all()


def test_labels_are_withheld_from_training_only() -> None:
    task = tiny(train=200, image_size=(8, 12), missing=0.3, holes=0.1)
    data = task.data()
    lacks = [
        data.train[1] == -1,
        data.train[2] == 0,
        (data.train[3] == 0).all(1),
    ]
    for lack in lacks:
        images = lack.flatten(1).all(1)
        assert images.float().mean().item() == pytest.approx(0.3, abs=0.1)
        assert lack[~images].float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert not torch.equal(lacks[0], lacks[1])
    assert task.counts(data.test).tolist() == [8 * 8 * 12] * 3
    whole = tiny(train=200, image_size=(8, 12), missing=0.0, holes=0.0).data().train
    assert torch.equal(data.train[2][~lacks[1]], whole[2][~lacks[1]])


@pytest.mark.parametrize("place", range(3))
def test_one_objective_alone_sees_what_it_sees_among_others(place: int) -> None:
    together = tiny()
    name = together.objectives[place]
    alone = tiny(only=name)
    assert alone.objectives == (name,)
    assert torch.equal(alone.data().train[1], together.data().train[1 + place])
    assert torch.equal(alone.data().train[0], together.data().train[0])
    assert list(alone.model().heads) == [name]


def test_absent_objectives_at_small_batches() -> None:
    task = tiny(missing=0.5)
    absent = (task.data().train[1] == -1).flatten(1).all(1)
    assert absent.any()
    run = train(start(task, "modo", lr=1e-3, batch_size=2), steps=6)
    assert all(p.isfinite().all() for p in run.model.parameters())


def losses_of(task: Scenes, method: str, steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """The test losses before and after training with the task's settings."""
    setting = task.settings[method]
    run = start(task, method, lr=setting.lr, hyperparameters=setting.method, batch_size=8)
    before = assess(run).losses
    return before, assess(train(run, steps)).losses


@pytest.mark.slow
def test_static_learns() -> None:
    before, after = losses_of(tiny(train=48, image_size=(16, 24)), "static", 120)
    for name in before:
        assert after[name] < 0.6 * before[name], name


def test_settings_are_of_methods_that_exist() -> None:
    assert set(Scenes.settings) <= set(methods.names())


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="missing must be at least 0 and below 1, found 1"):
        tiny(missing=1)
    with pytest.raises(ValueError, match="holes must be"):
        tiny(holes=-0.1)
    with pytest.raises(ValueError, match="noise must be a finite number of at least 0, found -1"):
        tiny(noise=-1)
    with pytest.raises(ValueError, match="image_size must be height and width"):
        tiny(image_size=(48, 64, 3))
    with pytest.raises(ValueError, match="train must be a whole number of at least 1"):
        tiny(train=0)
