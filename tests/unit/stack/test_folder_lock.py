"""Who may use a data folder?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.stack.errors import DataFolderLockedError
from service.stack.folder_lock import FolderLock


def test_a_second_holder_is_refused_in_one_line_with_folder_and_process(tmp_path: Path) -> None:
    FolderLock(tmp_path / "data").acquire()
    with pytest.raises(DataFolderLockedError) as caught:
        FolderLock(tmp_path / "data").acquire()
    line = str(caught.value)
    assert "\n" not in line
    assert str(tmp_path / "data") in line
    assert f"process {os.getpid()}" in line


def test_a_released_folder_can_be_taken_again(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    first.acquire()
    first.release()
    second = FolderLock(tmp_path)
    second.acquire()
    second.release()


def test_a_process_that_inherited_the_lock_keeps_the_folder_after_its_parent_let_go(
    tmp_path: Path,
) -> None:
    lock = FolderLock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.acquire(),)
    ) as heir:
        lock.release()
        with pytest.raises(DataFolderLockedError):
            FolderLock(tmp_path).acquire()
        heir.communicate(b"\n")
    last = FolderLock(tmp_path)
    last.acquire()
    last.release()
