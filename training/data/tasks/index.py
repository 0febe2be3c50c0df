"""import.json: what was imported into a folder of tasks, and its shards."""

from pathlib import Path

from roles.errors import UserError
from training.data.folders.index import FolderIndex, Record, Shard


class Source(Record):
    """A file that was imported. Example: Source(file="sums.jsonl", sha256="5c...")"""

    file: str
    sha256: str


class ImportIndex(FolderIndex[Shard]):
    """Content of import.json; without shards while they are being written.

    Example: ImportIndex(format=ImportIndex.FORMAT, name="sums", layout="qa", check="auto",
                         sources=(Source(...),), shards=(Shard(path="sums/train-00000.parquet", ...),))
    """

    FILE = "import.json"
    FORMAT = "emads-import/2"
    REMEDY = "import the files again into another folder"

    name: str
    layout: str
    check: str
    sources: tuple[Source, ...]


def read_import_index(folder: Path) -> ImportIndex:
    """The index of a folder of tasks.

    Raises:
        UserError: there is none, or a damaged one.
    """
    found = ImportIndex.find(folder)
    if found is None:
        raise UserError(
            f"cannot read {folder / ImportIndex.FILE}: no such file; import files with `emads import`"
        )
    return found
