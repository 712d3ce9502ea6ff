"""Fetch the public datasets: resume where a download was cut, and check it before it gets its final name.

A download grows in a `.part` file next to its target and is renamed only if its hash is the published one.
Nothing is fetched unless requested.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from apoint.data.connection import GivenUpError, Watch, open_url
from apoint.data.locate import store
from apoint.data.published import PUBLIC, Remote
from apoint.data.sums import digest_of_file, is_as_fetched, write_sums
from apoint.errors import ApointError, StorageError, UnknownNameError, UsageError, one_line

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far and the total bytes."""

ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 1.0  # before the second attempt; twice as long before each further one
_CHUNK = 1 << 20
_LONGEST_PAUSE = 60.0
_MOST_SENT = 16  # a file in the smallest of chunks takes less than this many times its size
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FetchError(ApointError):
    """A file could not be fetched: no network, a server's refusal, or a wrong hash."""


class _CutError(Exception):
    """The connection ended before the file did."""


def fetch(
    name: str, root: str | Path | None = None, *, force: bool = False, progress: Progress | None = None
) -> Path:
    """Fetch a public dataset and return the folder that holds its files.

    Args:
        name: The dataset's name, such as `fashion-mnist`.
        root: Where to put it; `$APOINT_DATA` or `~/.cache/apoint` if not given.
        force: Fetch it even if it is already there.
        progress: Called repeatedly with the file's name, the bytes so far and the total bytes.
    """
    if name not in PUBLIC:
        raise UnknownNameError("dataset to fetch", name, PUBLIC)
    base = store(Path(root).expanduser() if root is not None else None)
    for remote in PUBLIC[name]:
        if force or not is_complete(remote, base):
            fetch_remote(remote, base, progress)
    first = next(iter(PUBLIC[name][0].members), PUBLIC[name][0].file)
    return base / Path(first).parent


def is_complete(remote: Remote, base: Path) -> bool:
    """Whether the file, or each member of the archive, is present and complete."""
    if not remote.members:
        target = base / remote.file
        return (
            target.is_file()
            and target.stat().st_size == remote.size
            and _problem(target, remote.digest) is None
        )
    paths = {base / member: size for member, size in remote.members.items()}
    return all(
        path.is_file() and size in (0, path.stat().st_size) and is_as_fetched(path)
        for path, size in paths.items()
    )


def fetch_remote(remote: Remote, base: Path, progress: Progress | None = None) -> None:
    """Fetch one file into `base`, and extract its members if it is an archive."""
    target = base / remote.file
    download(remote.urls, target, size=remote.size, digest=remote.digest, progress=progress)
    if remote.members:
        extract(target, remote.members, base)
        target.unlink()


def download(
    urls: tuple[str, ...], target: Path, *, size: int, digest: str, progress: Progress | None = None
) -> None:
    """Download to `target` from the first URL that serves the file with this hash."""
    part = target.with_name(target.name + ".part")
    with _storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _refuse_full(part, size)
    reasons = []
    for url in urls:
        try:
            _checked(url, part, size, digest, progress)
        except FetchError as error:
            reasons.append(f"{url}: {error}")
            continue
        with _storing(target):
            os.replace(part, target)
        return
    raise FetchError(
        f"{target.name} could not be fetched: {'; '.join(reasons)}; try again later, or copy the file to "
        f"{target} by hand"
    )


def _checked(url: str, part: Path, size: int, digest: str, progress: Progress | None) -> None:
    """Transfer the whole file and check it; a wrong file is removed.

    If the wrong file began with a part from an earlier time, that part may be the cause: retry without it.
    """
    is_resumed = _length(part) > 0
    _transfer(url, part, size, progress)
    problem = _problem(part, digest)
    if problem is None:
        return
    part.unlink()
    if not is_resumed:
        raise FetchError(f"{problem}; what came was removed")
    _checked(url, part, size, digest, progress)


def _transfer(url: str, part: Path, size: int, progress: Progress | None) -> None:
    """Extend `part` to the whole file, resuming where the connection was cut."""
    if not re.match(r"https?://", url):
        raise UsageError(f"{url}: only http and https addresses can be fetched")
    watch = Watch(most_bytes=_MOST_SENT * size + (1 << 24))
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(min(_LONGEST_PAUSE, PAUSE_SECONDS * 2 ** (attempt - 1)))
        try:
            watch.begin()
            _continue(url, part, size, progress, watch)
            return
        except _CutError:
            continue
        except GivenUpError as error:
            raise FetchError(f"{error}; {_length(part)} of {size} bytes are here and will be kept") from None
    raise FetchError(
        f"the connection was cut {ATTEMPTS} times, {_length(part)} of {size} bytes are here and will be kept"
    )


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(url: str, part: Path, size: int, progress: Progress | None, watch: Watch) -> None:
    """Over one connection, request what is missing and append it; raise `_CutError` if it ends too early."""
    if _length(part) > size:
        part.unlink()
    have = _length(part)
    if have == size:
        return
    with _opened(url, have, part, watch) as answer:
        begins = _begins_at(answer, have)
        if answer.length is not None and begins + answer.length != size:
            raise FetchError(
                f"the server offers {begins + answer.length} bytes, published are {size}, so it is another "
                "file"
            )
        with _storing(part), part.open("ab" if begins else "wb") as stream:
            got = _copy(answer, stream, begins, size, progress)
    if got > size:
        part.unlink()
        raise FetchError(f"the server sends more than the published {size} bytes, so it is another file")
    if got < size:
        raise _CutError


def _opened(url: str, have: int, part: Path, watch: Watch) -> http.client.HTTPResponse:
    """The server's response to a request for the file from byte `have` on."""
    headers = {"User-Agent": "apoint", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        return open_url(urllib.request.Request(url, headers=headers), TIMEOUT_SECONDS, watch)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            part.unlink()  # the server's file is shorter than what we have: not the same file
            raise _CutError from None
        raise FetchError(f"the server answered {error.code} {_foreign(error.reason)}") from None
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or str(error.reason)
        raise FetchError(f"no connection ({_foreign(reason)}), is there a network?") from None
    except http.client.InvalidURL as error:
        raise FetchError(f"the server leads to no address ({_foreign(error)})") from None
    except (http.client.HTTPException, OSError) as error:
        raise _CutError from error
    except ValueError as error:  # a redirect that cannot be parsed
        raise FetchError(f"the server leads to no address ({_foreign(error)})") from None


def _foreign(text: object) -> str:
    """A server's text for a message, cleaned and shortened."""
    return one_line(str(text)[:200])


def _begins_at(answer: http.client.HTTPResponse, have: int) -> int:
    """Where the server's response begins: at byte `have` if it honours ranges, else at the beginning."""
    if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    stated = re.match(r"bytes ([0-9]{1,18})-", answer.headers.get("Content-Range", ""))
    if stated is None or int(stated[1]) != have:
        raise FetchError(f"asked for bytes from {have}, the server sent others")
    return have


def _copy(
    answer: http.client.HTTPResponse, stream: IO[bytes], have: int, size: int, progress: Progress | None
) -> int:
    """Append what arrives, up to `size` bytes in total; return how many bytes there are, or would be."""
    name = _foreign(answer.url.rsplit("/", 1)[-1])
    while have <= size and (chunk := _received(answer)):
        have += len(chunk)
        if have <= size:
            stream.write(chunk)
        if progress is not None:
            progress(name, min(have, size), size)
    return have


def _received(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_CHUNK)  # what has arrived, so that nothing is lost if the connection is given up
    except (http.client.HTTPException, OSError) as error:
        raise _CutError from error


def _problem(path: Path, digest: str) -> str | None:
    """What is wrong with the file's hash, or None."""
    algorithm, _, published = digest.partition(":")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, algorithm).hexdigest()
    if found == published:
        return None
    word = {"sha256": "SHA-256", "md5": "MD5"}[algorithm]
    return f"the {word} is {found}, published is {published}, so it is damaged or another file"


def _refuse_full(part: Path, size: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if free < size - _length(part):
        raise StorageError(
            f"{part.parent}: {size / 1e6:.0f} MB are needed for {part.stem}, {free / 1e6:.0f} MB are free; "
            "make room or choose another --data-root"
        )


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Turn disk errors into one sentence. No network code may run inside without catching its errors."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"{path}: the disk is full; make room or choose another --data-root, then fetch again to "
                "continue"
            ) from None
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None


def extract(archive: Path, members: Mapping[str, int], base: Path) -> None:
    """Extract the named members, which must be plain files, from a tar archive; nothing else is touched.

    Each goes to `base` under the requested name, never under one that the archive chooses.
    """
    missing = set(members)
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                if member.name in missing and member.isfile():
                    stream = tar.extractfile(member)
                    assert stream is not None, "a plain file has a stream"
                    _place(stream, base / member.name)
                    missing.discard(member.name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise FetchError(
            f"{archive}: the archive cannot be read ({_foreign(error)}); fetch it again"
        ) from None
    if missing:
        raise FetchError(f"{archive}: {sorted(missing)[0]} is not in the archive; fetch it again")
    paths = [base / name for name in members]
    for folder in {path.parent for path in paths}:
        with _storing(folder):
            write_sums(folder, {path.name: digest_of_file(path) for path in paths if path.parent == folder})


def _place(stream: IO[bytes], target: Path) -> None:
    part = target.with_name(target.name + ".part")
    with _storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            shutil.copyfileobj(stream, out, _CHUNK)
        os.replace(part, target)
