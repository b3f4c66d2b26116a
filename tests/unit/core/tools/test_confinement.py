"""What is in force of a confinement on a machine, and what a machine lacks."""

from __future__ import annotations

from caxton_host.core.tools.confinement import Confine, Machine, in_force, lacking

BARE = Machine(landlock=1, filter=True)
FULL = Machine(
    landlock=7,
    filter=True,
    processes=True,
    scratch=True,
    frozen=True,
    proc=True,
    counted=True,
    connect="namespace",
)


def test_machine_without_landlock_or_seccomp_confines_nothing() -> None:
    assert lacking(Machine(filter=True)).startswith("Landlock")
    assert lacking(Machine(landlock=7)).startswith("seccomp")
    assert lacking(BARE) == ""


def test_what_the_kernel_does_not_back_is_not_claimed() -> None:
    bare = in_force(BARE, Confine())

    assert bare["files"] == "Landlock version 1"
    assert "not counted" in bare["processes"]
    assert "can be killed" in bare["processes"]
    assert "no limit" in bare["scratch"]
    assert bare["/proc"] == "none"


def test_what_is_in_force_is_said_with_its_limits() -> None:
    confine = Confine(memory=64 << 20, processes=9, connect=("a.example:443",))
    full = in_force(FULL, confine)

    assert "read-only" in full["files"]
    assert "a.example:443" in full["network"]
    assert "at most 9" in full["processes"]
    assert "64 MiB" in full["memory"]
    assert full["scratch"] == "in memory, at most 64 MiB"
    # Root's processes are not counted, those of another user are.
    of_root = Machine(landlock=7, filter=True, processes=True)
    assert "not counted" in in_force(of_root, Confine())["processes"]
    assert "at most" in in_force(of_root, Confine(user="tools"))["processes"]
    assert in_force(FULL, Confine(network="host"))["network"] == "as the host's"
