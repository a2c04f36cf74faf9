"""Which files of a run does nobody need any more, and how are they removed under a run that goes on?"""

from iteration_lib.garbage.collection import Collection, check_newest, collect_garbage
from iteration_lib.garbage.judgement import Fate, JudgedFile, References, judge_files
from iteration_lib.garbage.references import read_references

__all__ = [
    "Collection",
    "Fate",
    "JudgedFile",
    "References",
    "check_newest",
    "collect_garbage",
    "judge_files",
    "read_references",
]
