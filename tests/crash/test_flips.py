"""Random bit flips: no signal, no endless loop, no structure silently taken for sound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash import flips

FLIPS = int(os.environ.get("YTP_FLIPS", "10000"))
SEED = int(os.environ.get("YTP_SEED", "1"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["ytp", "yamal8"])
def test_flipped_bits_give_errors_or_other_content_and_nothing_worse(target: str, tmp_path: Path) -> None:
    tried = list(flips.run(target, SEED, FLIPS // 2, tmp_path))
    assert len(tried) == FLIPS // 2
    assert [flip for flip in tried if flip.outcome in ("signal", "hang") or flips.silent(flip)] == []


def test_the_experiment_sees_a_reader_that_dies(tmp_path: Path) -> None:
    """The published package dies of some flips; an experiment that does not notice would prove nothing."""
    pytest.importorskip("yamal", reason="the published package is not installed")
    tried = list(flips.run("yamal8-package", 1, 300, tmp_path))
    assert len(tried) == 300
    assert any(flip.outcome == "signal" for flip in tried)
