"""
What a worker of components may have more than others: memory that is a file.

It has no name, is bounded in number and size, cannot be sent anywhere or executed,
and every other way to a descriptor is closed as in any worker (`test_prisoner`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from caxton_host.sandbox import confine

from .prisoner import BECOME_ORDINARY, CONFINE, CONFINE_WITH_IMAGES, Prisoner

#: As wasmtime does: to be closed on exec, and sealed when it is written.
MAKE = "os.memfd_create('x', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)"
ADD_SEALS, ALL_SEALS = 1033, 15


@pytest.fixture(params=["same user", "ordinary user"])
def prisoner(request: pytest.FixtureRequest) -> Iterator[Prisoner]:
    before = BECOME_ORDINARY if request.param == "ordinary user" else "pass"
    with Prisoner(f"{before}\n{CONFINE_WITH_IMAGES}") as confined:
        yield confined


def test_an_image_can_be_made_sealed_and_mapped(prisoner: Prisoner) -> None:
    found = prisoner.run(
        f"""
image = {MAKE}
os.write(image, b"contents")
fcntl.fcntl(image, {ADD_SEALS}, {ALL_SEALS})
written = attempt(os.write, image, b"more")
libc.mmap.restype = ctypes.c_void_p
places = [libc.mmap(None, ctypes.c_size_t(4096), 3, 2, image, 0) for _ in "12"]
ctypes.memmove(places[0], b"mine", 4)
result = [written, *(ctypes.string_at(place, 8).decode() for place in places)]
"""
    )
    assert found == [errno.EPERM, "mineents", "contents"]


# law 1
def test_images_are_few(prisoner: Prisoner) -> None:
    found = prisoner.run(f"result = [attempt(lambda: {MAKE}) for _ in range(40)]")
    assert found.count(0) < confine.IMAGES
    assert set(found) == {0, errno.EMFILE}


# law 1
def test_an_image_is_bounded(prisoner: Prisoner) -> None:
    size = confine.IMAGE_SIZE
    found = prisoner.run(
        f"""
image = {MAKE}
block = bytes(1 << 20)
for _ in range({size} // len(block)): os.write(image, block)
result = [attempt(os.write, image, b"1"), attempt(os.ftruncate, image, {size + 1})]
"""
    )
    assert found == [errno.EFBIG, errno.EPERM]


# law 1
@pytest.mark.parametrize(
    ("attack", "error"),
    [
        ("os.memfd_create('x')", errno.EPERM),
        ("os.memfd_create('x', 0)", errno.EPERM),
        ("os.memfd_create('x', os.MFD_ALLOW_SEALING)", errno.EPERM),
        ("os.memfd_create('x', 3 | os.MFD_HUGETLB)", errno.EPERM),
        ("os.execve(image, ['x'], {})", errno.EPERM),
        ("os.posix_fallocate(image, 0, 4096)", errno.EPERM),
        ("os.dup(image)", errno.EPERM),
        ("os.fchmod(image, 0o777)", errno.EPERM),
        ("os.sendfile(door.fileno(), image, 0, 1)", errno.EPERM),
        ("socket.send_fds(door, [b'x'], [image])", errno.EPERM),
        ("os.open('/proc/self/fd/%d' % image, os.O_RDONLY)", errno.EPERM),
        ("fcntl.fcntl(image, fcntl.F_SETOWN, os.getppid())", errno.EPERM),
        ("fcntl.fcntl(image, fcntl.F_DUPFD, 9)", errno.EPERM),
        ("fcntl.fcntl(image, fcntl.F_NOTIFY, 1)", errno.EPERM),
        ("fcntl.lockf(image, fcntl.LOCK_EX)", errno.EPERM),
    ],
)
def test_an_image_leads_nowhere(prisoner: Prisoner, attack: str, error: int) -> None:
    found = prisoner.run(
        f"image = {MAKE}\nos.write(image, b'12345')\nresult = attempt(lambda: {attack})"
    )
    assert found == error


# law 1
@pytest.mark.parametrize("before", ["pass", BECOME_ORDINARY])
def test_an_artifact_is_loaded_by_a_process_that_is_confined(before: str) -> None:
    with Prisoner(
        f"""
{before}
found = []
image = {MAKE}
os.write(image, b"code")
path = f"/proc/self/fd/{{image}}"
def load():
    found.append(os.read(os.open(path, os.O_RDONLY), 4).decode())
    found.extend([
        attempt(os.open, path, os.O_RDWR),
        attempt(os.open, "/tmp/x", os.O_CREAT | os.O_WRONLY),
        attempt(os.open, f"/proc/{{os.getppid()}}/environ", os.O_RDONLY),
        attempt(os.open, "/etc/passwd", os.O_RDONLY),
        attempt(socket.socket), attempt(os.fork), attempt(os.kill, os.getppid(), 0),
    ])
guards = confine.confine(images=True, load=load)
"""
    ) as one:
        found, guards = one.run("result = [found, guards]")
        after = one.run("result = attempt(os.open, path, os.O_RDONLY)")

    closed = errno.EACCES if "landlock" in guards else 0
    assert found[:3] == ["code", errno.EPERM, errno.EPERM]
    assert found[3:5] == [errno.EACCES, closed]
    assert found[5:] == [errno.EPERM] * 3
    assert after == errno.EPERM


def test_a_worker_of_core_modules_has_none() -> None:
    with Prisoner(CONFINE) as other:
        assert other.run(f"result = attempt(lambda: {MAKE})") in {
            errno.EPERM,
            errno.EMFILE,
        }


# The attacks are real: where nothing is confined, they succeed.
def test_an_unconfined_process_may_make_any() -> None:
    with Prisoner("pass") as free:
        assert free.run(
            f"""
image = {MAKE}
os.ftruncate(image, {confine.IMAGE_SIZE + 1})
result = [attempt(os.dup, image), attempt(os.memfd_create, 'x')]
"""
        ) == [0, 0]
