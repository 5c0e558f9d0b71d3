"""The data sets and traces Plexus knows: where they come from, under what licence, how to check them.

Nothing here is shipped with Plexus: several licences forbid it. `path` is where a file belongs in the
data directory; a spec names a trace there as `data:PATH`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from plexus.checked import not_one_of
from plexus.errors import PlexusError

Kind = Literal["devices", "availability", "latency", "places", "task"]


class File(Struct, frozen=True):
    """One file of a data set."""

    path: str
    size: int
    """Bytes."""
    checksums: tuple[str, ...]
    """`sha256:...` or `md5:...`; more than one where a file is known in several forms."""
    kind: Kind = "task"
    url: str | None = None
    member: str | None = None
    """Its name within the data set's archive, where there is one."""
    round_trip: bool = False
    """Of latencies: they are there and back."""


class Archive(Struct, frozen=True):
    """A download that holds the files of a data set as members."""

    url: str
    size: int


class Dataset(Struct, frozen=True):
    """What a user asks for by name."""

    name: str
    what: str
    licence: str
    page: str
    """Where people read about it, and find it if it cannot be fetched."""
    files: tuple[File, ...]
    archive: Archive | None = None

    @property
    def size(self) -> int:
        """Bytes once it is here."""
        return sum(file.size for file in self.files)

    @property
    def fetchable(self) -> bool:
        """Whether there is an address to fetch it from."""
        return self.archive is not None or all(file.url is not None for file in self.files)


_FEDSCALE = (
    "https://raw.githubusercontent.com/SymbioticLab/FedScale/master/benchmark/dataset/data/device_info"
)
_FEDSCALE_PAGE = "https://github.com/SymbioticLab/FedScale"
_FLASH_PAGE = "https://github.com/PKU-Chengxu/FLASH"
_WONDER_PAGE = "https://wonderproxy.com/blog/a-day-in-the-life-of-the-internet/"
_BATCH_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def _movielens(name: str, size: int, crlf: str, lf: str) -> File:
    """Known with either kind of line end; the official archive has CRLF."""
    folder = "ml-latest-small"
    checksums = (f"sha256:{crlf}", f"sha256:{lf}")
    return File(f"movielens/{folder}/{name}", size, checksums, member=f"{folder}/{name}")


DATASETS: tuple[Dataset, ...] = (
    Dataset(
        "fedscale-capacity",
        "compute and bandwidth of 500,000 phones, the paper's devices",
        "Apache-2.0",
        _FEDSCALE_PAGE,
        (
            File(
                "fedscale/client_device_capacity",
                39_369_071,
                ("sha256:477f61049443987318fc5667cafa059b3b420eb0e03ccb5ceb3262d20e059e53",),
                "devices",
                f"{_FEDSCALE}/client_device_capacity",
            ),
        ),
    ),
    Dataset(
        "fedscale-behaviour",
        "availability of 107,749 phones, second by second",
        "Apache-2.0",
        _FEDSCALE_PAGE,
        (
            File(
                "fedscale/client_behave_trace",
                25_640_150,
                ("sha256:d0b6f81a01f0ea5f7ec432583f5afe93b1e72424db4c1affa88c484f15901662",),
                "availability",
                f"{_FEDSCALE}/client_behave_trace",
            ),
        ),
    ),
    Dataset(
        "fedscale-excerpt",
        "383 rows of fedscale-capacity, 26 clients of fedscale-behaviour",
        "Apache-2.0",
        _FEDSCALE_PAGE,
        (
            File(
                "fedscale/client_device_capacity_excerpt.csv",
                5_572,
                ("sha256:3e12fa2a6cf2b0192118acf66c4902b03778de3a0a43fb27fc240750ad75c73f",),
                "devices",
            ),
            File(
                "fedscale/client_behave_trace_excerpt.json",
                6_676,
                ("sha256:90536e22357ee6973479bb5645864ba68a03ca012cca03268b9de37bc115ff38",),
                "availability",
            ),
        ),
    ),
    Dataset(
        "flash-300",
        "availability of 300 phones over six days, on and off events",
        "BSD-2-Clause, Apache-2.0",
        _FLASH_PAGE,
        (
            File(
                "flash/flash_300devices_6d_2state.json",
                299_744,
                ("sha256:55b782569728034833ed1ab07c6e47b830d53ff48614431545073dfbc5cd9e34",),
                "availability",
            ),
        ),
    ),
    Dataset(
        "flash-half-hours",
        "availability of 723 phones over five days: idle, charging and on WiFi",
        "BSD-2-Clause",
        _FLASH_PAGE,
        (
            File(
                "flash/availability_723x241_halfhours.npy",
                1_394_072,
                ("sha256:0e1fd495d897be617a5b0bb280dd6c43b16774b4b22a7c5ae67b88d7d4285c84",),
                "availability",
            ),
        ),
    ),
    Dataset(
        "wondernetwork-227",
        "one-way latency between 227 cities, the paper's matrix",
        "none stated",
        _WONDER_PAGE,
        (
            File(
                "latency/wondernetwork-227.csv",
                394_314,
                ("sha256:38082208f5bc0f3335773b866acd16cf3965afe40bffdaa4340d87a8ff5fa503",),
                "latency",
            ),
            File(
                "latency/wondernetwork-227-city-guess.csv",
                11_412,
                ("sha256:5c993e504930fade6829b5e9cb01bfe7806e0c9f694e1e0636d292f983ffdac3",),
                "places",
            ),
        ),
    ),
    Dataset(
        "wondernetwork-2020",
        "round trips between 246 named cities on 19 July 2020",
        "none stated",
        _WONDER_PAGE,
        (
            File(
                "latency/wondernetwork-2020-07-19-pings-grouped.csv",
                2_948_677,
                ("sha256:67ffee9718013a434d386562196ce1f932dab9159d617744280e7e0e1d4a67a4",),
                "latency",
                round_trip=True,
            ),
            File(
                "latency/wondernetwork-2020-07-19-servers.csv",
                18_668,
                ("sha256:41a0429e577943a5731ccc2d576aaa38b01cc7ec4eb87adf48f242068370467c",),
                "places",
            ),
        ),
    ),
    Dataset(
        "cifar10",
        "60,000 small photographs in ten classes, binary batches",
        "none stated",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        tuple(
            File(
                f"cifar-10-batches-bin/{name}",
                30_730_000,
                (f"md5:{md5}",),
                member=f"cifar-10-batches-bin/{name}",
            )
            for name, md5 in _BATCH_MD5.items()
        ),
        Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170_052_171),
    ),
    Dataset(
        "movielens-small",
        "100,836 ratings of 9,724 films by 610 people",
        "GroupLens: research use, same terms on redistribution",
        "https://grouplens.org/datasets/movielens/latest/",
        (
            _movielens(
                "ratings.csv",
                2_483_723,
                "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646",
                "80da8b3393dae325bbba5a31f291a6ba55d8d4f4396de3c456f2c1635b1b70e8",
            ),
            _movielens(
                "movies.csv",
                494_431,
                "5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07",
                "c47b783f23eb304413307e1bb05335e427737da20ec8d3c0e96335567dd5f3dc",
            ),
        ),
        Archive("https://files.grouplens.org/datasets/movielens/ml-latest-small.zip", 978_202),
    ),
    Dataset(
        "celeba-people",
        "CelebA's list of who is on which photograph and its split, for LEAF's preparation",
        "non-commercial research",
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        (
            File("celeba/raw/identity_CelebA.txt", 3_424_458, ("md5:32bd1bd63d3c78cd57e08160ec5ed1e2",)),
            File("celeba/raw/list_eval_partition.txt", 2_836_386, ("md5:d32c9cbf5e040fd4025c592c306e6668",)),
        ),
    ),
    Dataset(
        "digits-by-writer",
        "MNIST with the writer of each of its 70,000 digits",
        "MNIST CC BY-SA 3.0, QMNIST BSD-3-Clause",
        "https://github.com/facebookresearch/qmnist",
        (
            File(
                "digits-by-writer/mnist_by_writer.npz",
                11_552_180,
                ("sha256:871c47271d9c73a8197f423f71e7840109ffa514cad80bd768bc7fe69156dedc",),
            ),
        ),
    ),
)
REGISTRY = {dataset.name: dataset for dataset in DATASETS}


def dataset(name: str) -> Dataset:
    """The data set of that name."""
    if name not in REGISTRY:
        raise PlexusError(f"data set {not_one_of(name, REGISTRY)}")
    return REGISTRY[name]
