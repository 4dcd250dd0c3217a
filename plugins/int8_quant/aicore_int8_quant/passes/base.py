"""What the passes of a quantisation share: the job that they work on."""

from __future__ import annotations

from dataclasses import dataclass, field

from aicore.passes import Pass
from aicore_int8_quant.job import Job


@dataclass(frozen=True, eq=False)
class JobPass(Pass):
    """A step of one quantisation, which reads the job and adds to it."""

    job: Job = field(default_factory=Job)
