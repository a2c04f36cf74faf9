"""How do the tests' JVMs start? Quickly: they live for seconds, and most of those went into starting.

`python -m tests.spark_jvm` dumps the classes that a small job on Spark loads into an archive beside the installed
packages, from which later JVMs take them as they are, without reading and verifying them: class data sharing, as the
JVM calls it. It does nothing where the archive is there and fits; where none can be made the tests are only slower. A
small job takes 9 to 11 seconds of a processor with it and 17 without, and the dump itself 60.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from iteration_lib.errors import IterationError

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
VARIABLE = "SPARK_SUBMIT_OPTS"

# A second compiler and several collecting threads cost a short life more than they bring. The archive fits only a JVM
# with the same collector.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# 16 partitions, a local session's number, are mostly empty ones of the tests' few rows, which cost a task each.
_SMALL = "-Dspark.sql.shuffle.partitions=3"
_JOB = Path(__file__).with_name("archived_job.py")
_MAX_SECONDS = 600


def jvm_options() -> str:
    """Return what Spark's launcher shall tell each JVM, as its variable SPARK_SUBMIT_OPTS holds it."""
    quick = f"{_QUICK} {_use(ARCHIVE)}" if ARCHIVE.exists() else _QUICK
    return f'{quick} {_SMALL} "-Dspark.executor.extraJavaOptions={quick}"'


def _use(archive: Path) -> str:
    """Take classes from the archive; one of another Java or Spark, after an upgrade say, is passed over in silence."""
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _fits(archive: Path) -> bool:
    """Tell whether a JVM starts from an archive; half of one would end it."""
    return archive.exists() and _submit(f"{_QUICK} -Xshare:on {_use(archive)}", "--version").returncode == 0


def _dump() -> None:
    """Have a job list its classes, dump them under another name, and let JVMs find them once one has started so."""
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        listed, draft = Path(folder) / "classes", Path(folder) / ARCHIVE.name
        _submit(f"{_QUICK} {_SMALL} -XX:DumpLoadedClassList={listed}", str(_JOB)).check_returncode()
        dump = f"-Xshare:dump -XX:SharedClassListFile={listed} -XX:SharedArchiveFile={draft}"
        _submit(f"{_QUICK} {dump}", "--version").check_returncode()
        if not _fits(draft):
            raise OSError("no JVM starts from what was dumped")
        draft.replace(ARCHIVE)


def _submit(options: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    import pyspark  # noqa: PLC0415  (whoever runs tests without Spark imports this module too)

    from iteration_lib.runner.java import find_java_home  # noqa: PLC0415

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        VARIABLE: options,
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [home / "bin" / "spark-submit", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_MAX_SECONDS)


def main() -> None:
    """See to an archive that fits; say why where none can be made."""
    try:
        if not _fits(ARCHIVE):
            ARCHIVE.unlink(missing_ok=True)
            _dump()
    except (IterationError, OSError, subprocess.SubprocessError) as err:
        said = f"{err}\n{getattr(err, 'stderr', None) or ''}"
        sys.stderr.write(f"spark_jvm: no archive of Spark's classes; the tests do without: {said[:1000]}\n")


if __name__ == "__main__":
    main()
