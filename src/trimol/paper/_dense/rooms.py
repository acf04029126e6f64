"""Generated rooms: walls, floor, ceiling and boxes, seen by a pinhole camera, by ray casting.

World coordinates are in metres with z up; a room fills [0, size]. Camera coordinates are x to the
right, y down, z forward. A pixel's ray is (x, y, 1) in camera coordinates, so that the distance
along it, in units of the ray, *is* the depth z of what it hits.

Everything is exact geometry: a pixel's depth, normal and class come from the same hit.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]
FLOOR, CEILING, WALL = 0, 1, 2
# Width, length and height of each kind of box, from … to, in metres.
BOXES = {
    "bed": ((1.2, 1.8), (1.6, 2.1), (0.4, 0.6)),
    "table": ((0.6, 0.9), (1.0, 1.6), (0.7, 0.8)),
    "cupboard": ((0.4, 0.6), (0.8, 1.5), (1.6, 2.1)),
    "crate": ((0.4, 0.8), (0.4, 0.8), (0.4, 0.8)),
}
CLASSES = ("floor", "ceiling", "wall", *BOXES)
# The colours of the classes, in the mean over rooms; each room has its own shade of them.
ALBEDO = np.array(
    [
        [0.55, 0.40, 0.25],
        [0.90, 0.90, 0.88],
        [0.75, 0.72, 0.60],
        [0.35, 0.45, 0.75],
        [0.60, 0.30, 0.15],
        [0.40, 0.55, 0.35],
        [0.80, 0.55, 0.20],
    ]
)
SHADES = 0.08  # standard deviation of a colour over rooms
AMBIENT = 0.4  # of the light comes from everywhere, the rest from the lamp
FIELD = math.radians(60)  # the camera's horizontal field of view
CLEARANCE = 0.4  # metres between the camera and anything


@dataclass(frozen=True)
class Box:
    """A box on the floor, turned about the vertical."""

    kind: int  # its class, an index into `CLASSES`
    centre: Array
    half: Array  # of its width, length and height
    turn: float  # in radians

    @property
    def axes(self) -> Array:
        """Its own three directions, as columns."""
        cos, sin = math.cos(self.turn), math.sin(self.turn)
        return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Camera:
    """A pinhole camera."""

    position: Array  # in the world
    axes: Array  # right, down and forward in the world, as columns


@dataclass(frozen=True)
class Room:
    """A room, and from where it is seen."""

    size: Array  # its three extents
    boxes: tuple[Box, ...]
    camera: Camera
    lamp: Array  # where the light is
    albedo: Array  # the colour of each class here, classes × 3


@dataclass(frozen=True)
class View:
    """What a camera sees, pixel by pixel."""

    image: Array  # H × W × 3, in [0, 1]
    label: NDArray[np.int64]  # H × W, indices into `CLASSES`
    depth: Array  # H × W, along the camera's z, in metres
    normal: Array  # H × W × 3, of unit length, in camera coordinates, towards the camera


def view(seed: tuple[int, ...], height: int, width: int, *, noise: float = 0.02) -> View:
    """The view of the one room that a seed names; the image has noise of this deviation.

    >>> seen = view((0, 2), 12, 16)
    >>> seen.image.shape, sorted({CLASSES[c] for c in seen.label.flat})
    ((12, 16, 3), ['crate', 'cupboard', 'floor', 'wall'])
    """
    random = np.random.default_rng(seed)
    room = draw_room(random)
    label, depth, normal = cast_rays(room, height, width)
    image = paint(room, label, depth, normal)
    image = np.clip(image + noise * random.standard_normal(image.shape), 0, 1)
    return View(image, label, depth, normal)


def draw_room(random: Generator) -> Room:
    """A room at random."""
    size = np.array([*random.uniform(3, 6, 2), random.uniform(2.4, 3.0)])
    camera = _draw_camera(random, size)
    boxes = (_draw_box(random, size) for _ in range(random.integers(3, 7)))
    return Room(
        size=size,
        boxes=tuple(box for box in boxes if _is_clear(box, camera)),
        camera=camera,
        lamp=np.array([*random.uniform(0.5, size[:2] - 0.5), size[2] - 0.1]),
        albedo=np.clip(ALBEDO + SHADES * random.standard_normal(ALBEDO.shape), 0.05, 1),
    )


def _draw_camera(random: Generator, size: Array) -> Camera:
    """At the height of a head, looking roughly at the middle of the room."""
    place = random.uniform(CLEARANCE, size[:2] - CLEARANCE)
    position = np.array([*place, random.uniform(1.2, 1.7)])
    middle = size[:2] / 2 - position[:2]
    yaw = math.atan2(middle[1], middle[0]) + random.uniform(-0.6, 0.6)
    return Camera(position, camera_axes(yaw, random.uniform(-0.4, 0.15), random.uniform(-0.1, 0.1)))


def camera_axes(yaw: float, pitch: float, roll: float) -> Array:
    """Right, down and forward, as columns.

    The direction of sight is turned by yaw about the vertical, from the world's x, and by pitch
    above the horizon; the camera by roll about it.

    >>> camera_axes(0.0, 0.0, 0.0).round(3) + 0.0  # looks along x; right is −y, down is −z
    array([[ 0.,  0.,  1.],
           [-1.,  0.,  0.],
           [ 0., -1.,  0.]])
    """
    forward = np.array(
        [math.cos(pitch) * math.cos(yaw), math.cos(pitch) * math.sin(yaw), math.sin(pitch)]
    )
    level = np.array([math.sin(yaw), -math.cos(yaw), 0.0])
    below = np.cross(forward, level)
    right = math.cos(roll) * level + math.sin(roll) * below
    return np.stack([right, np.cross(forward, right), forward], axis=1)


def _draw_box(random: Generator, size: Array) -> Box:
    kind = int(random.integers(len(BOXES)))
    half = np.array([random.uniform(*extent) for extent in list(BOXES.values())[kind]]) / 2
    reach = math.hypot(half[0], half[1])
    centre = np.array([*random.uniform(reach, size[:2] - reach), half[2]])
    return Box(WALL + 1 + kind, centre, half, random.uniform(0, math.pi))


def _is_clear(box: Box, camera: Camera) -> bool:
    """Whether the camera is outside the box's circle, and some way from it."""
    apart = math.hypot(*(box.centre - camera.position)[:2])
    return apart > math.hypot(box.half[0], box.half[1]) + CLEARANCE


def rays(height: int, width: int) -> Array:
    """The rays through the pixels' centres in camera coordinates, H × W × 3, each with z = 1."""
    focal = width / 2 / math.tan(FIELD / 2)
    y, x = np.mgrid[:height, :width] + 0.5
    return np.stack([(x - width / 2) / focal, (y - height / 2) / focal, np.ones_like(x)], axis=-1)


def cast_rays(room: Room, height: int, width: int) -> tuple[NDArray[np.int64], Array, Array]:
    """Class, depth and normal (in camera coordinates) of what each pixel's ray hits first."""
    camera = room.camera
    directions = rays(height, width).reshape(-1, 3) @ camera.axes.T
    label, depth, normal = _hit_walls(room.size, camera.position, directions)
    for box in room.boxes:
        entry, facing = _hit_box(box, camera.position, directions)
        nearer = entry < depth
        label[nearer], depth[nearer], normal[nearer] = box.kind, entry[nearer], facing[nearer]
    shape = (height, width)
    return label.reshape(shape), depth.reshape(shape), (normal @ camera.axes).reshape(*shape, 3)


def _hit_walls(
    size: Array, origin: Array, directions: Array
) -> tuple[NDArray[np.int64], Array, Array]:
    """Where rays from inside the room leave it."""
    _, far = _slabs(origin, directions, np.zeros(3), size)
    axis = far.argmin(1)
    normal = _against(directions, axis)
    label = np.where(axis < 2, WALL, np.where(normal[:, 2] > 0, FLOOR, CEILING))
    return label, far.min(1), normal


def _hit_box(box: Box, origin: Array, directions: Array) -> tuple[Array, Array]:
    """Where rays enter a box (infinity: nowhere), and the normal there."""
    start, along = (origin - box.centre) @ box.axes, directions @ box.axes
    near, far = _slabs(start, along, -box.half, box.half)
    entry = near.max(1)
    hit = (entry > 0) & (entry < far.min(1))
    return np.where(hit, entry, np.inf), _against(along, near.argmax(1)) @ box.axes.T


def _slabs(origin: Array, directions: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """For each axis, where rays enter and leave the space between two planes across it."""
    with np.errstate(divide="ignore"):  # a ray along the planes crosses them at infinity
        first, second = (low - origin) / directions, (high - origin) / directions
    return np.minimum(first, second), np.maximum(first, second)


def _against(directions: Array, axis: NDArray[np.int64]) -> Array:
    """The unit vectors along these axes that point against the rays."""
    rows = np.arange(len(axis))
    normal = np.zeros_like(directions)
    normal[rows, axis] = -np.sign(directions[rows, axis])
    return normal


def paint(room: Room, label: NDArray[np.int64], depth: Array, normal: Array) -> Array:
    """The image: the class's colour × (ambient light + the lamp's by Lambert's cosine law)."""
    axes = room.camera.axes
    points = room.camera.position + (rays(*label.shape) * depth[..., None]) @ axes.T
    towards = room.lamp - points
    towards /= np.linalg.norm(towards, axis=-1, keepdims=True)
    cosine = np.maximum((normal @ axes.T * towards).sum(-1), 0)
    image: Array = room.albedo[label] * (AMBIENT + (1 - AMBIENT) * cosine)[..., None]
    return image
