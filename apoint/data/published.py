"""The public datasets: the URLs of their files, their sizes, and their published hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Remote:
    """A file to fetch.

    Attributes:
        file: Its name, including its folder below the data folder.
        urls: Its URLs; the next is tried if one fails.
        size: Its size in bytes.
        digest: Its published hash, `sha256:…` or `md5:…`.
        members: For an archive, the members to extract, each with its size (0 if unknown); the archive itself
            is then removed.
    """

    file: str
    urls: tuple[str, ...]
    size: int
    digest: str
    members: Mapping[str, int] = field(default_factory=dict)


def _idx_files(
    folder: str, bases: tuple[str, ...], files: Mapping[str, tuple[int, str]]
) -> tuple[Remote, ...]:
    return tuple(
        Remote(
            f"{folder}/{name}-ubyte.gz",
            tuple(f"{base}{name}-ubyte.gz" for base in bases),
            size,
            f"sha256:{value}",
        )
        for name, (size, value) in files.items()
    )


def _archive(name: str, size: int, digest: str, members: Mapping[str, int]) -> tuple[Remote, ...]:
    return (Remote(name, (f"https://www.cs.toronto.edu/~kriz/{name}",), size, f"sha256:{digest}", members),)


# Lengths and SHA-256 as TensorFlow Datasets publishes them; the authors themselves state only MD5.
PUBLIC: dict[str, tuple[Remote, ...]] = {
    "mnist": _idx_files(
        "mnist",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3": (
                9912422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            "train-labels-idx1": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            "t10k-images-idx3": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            "t10k-labels-idx1": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        },
    ),
    "fashion-mnist": _idx_files(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train-images-idx3": (
                26421880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            "train-labels-idx1": (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            "t10k-images-idx3": (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            "t10k-labels-idx1": (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        },
    ),
    "cifar-10": _archive(
        "cifar-10-binary.tar.gz",
        170052171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        {
            f"cifar-10-batches-bin/{stem}.bin": 30730000
            for stem in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
        },
    ),
    "cifar-100": _archive(
        "cifar-100-binary.tar.gz",
        168513733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        {
            "cifar-100-binary/train.bin": 153700000,
            "cifar-100-binary/test.bin": 30740000,
            "cifar-100-binary/fine_label_names.txt": 0,
            "cifar-100-binary/coarse_label_names.txt": 0,
        },
    ),
}
