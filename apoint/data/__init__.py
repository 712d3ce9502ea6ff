"""Datasets, splits, deficits, augmentation, random streams.

data = apoint.data.load("fashion-mnist", validation=0.1)
batch = data.normalise(data.to_unit(data.train.inputs[:64]))
"""

from apoint.data import (
    augmentation,
    cifar,
    corpus,
    deficits,
    embedded,
    folders,
    idx,
    mnist1d,
    npz,
    parquet,
    procedural,
    shards,
    splits,
    streams,
    tables,
    text,
    toys,
)
from apoint.data.arrays import as_data, as_source, from_dataset, from_tensors
from apoint.data.checks import examine
from apoint.data.core import Data, Facts, Kind, Source, Split, Task
from apoint.data.fetching import FetchError, fetch
from apoint.data.listing import Entry, Report, catalogue, check
from apoint.data.loading import BY_EXTENSION, assemble, load
from apoint.data.stored import StoredImages
from apoint.data.toys import Teacher, make_teacher

__all__ = [
    "BY_EXTENSION",
    "Data",
    "Entry",
    "Facts",
    "FetchError",
    "Kind",
    "Report",
    "Source",
    "Split",
    "StoredImages",
    "Task",
    "Teacher",
    "as_data",
    "as_source",
    "assemble",
    "augmentation",
    "catalogue",
    "check",
    "cifar",
    "corpus",
    "deficits",
    "embedded",
    "examine",
    "fetch",
    "folders",
    "from_dataset",
    "from_tensors",
    "idx",
    "load",
    "make_teacher",
    "mnist1d",
    "npz",
    "parquet",
    "procedural",
    "shards",
    "splits",
    "streams",
    "tables",
    "text",
    "toys",
]
