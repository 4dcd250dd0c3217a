"""Voice activity detectors of silero-vad, whose state a caller carries from chunk to chunk, and sound for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Setting:
    """One way to call a detector: samples per second, sequences in a batch, and chunks in a call."""

    rate: int = 16000
    batch: int = 1
    chunks: int = 1


@dataclass(frozen=True)
class Detector:
    """A model that takes sound and a state, and gives probabilities and the next state.

    state: shape of each state input for a batch.
    carried: (output, input) pairs: the output is that input of the next call.
    settings: two ways to call it.
    takes_rate: whether the samples per second are an input.
    """

    name: str
    state: Callable[[int], dict[str, tuple[int, ...]]]
    carried: tuple[tuple[str, str], ...]
    settings: tuple[Setting, Setting]
    takes_rate: bool = False

    def first_state(self, setting: Setting) -> Feeds:
        return {name: np.zeros(shape, np.float32) for name, shape in self.state(setting.batch).items()}

    def feeds(self, setting: Setting, call: int) -> Feeds:
        """The inputs of one call but for the state: chunks of 32 ms, each behind 4 ms of the one before."""
        fresh, context = setting.rate * 32 // 1000, setting.rate * 4 // 1000
        rows = []
        for row in range(setting.batch * setting.chunks):
            voice, chunk = (row, call) if setting.chunks == 1 else (0, call * setting.chunks + row)
            sound = voice_like(voice, setting.rate, chunk * fresh, context + fresh)
            rows.append(sound)
        rate = {"sr": np.array(setting.rate, np.int64)} if self.takes_rate else {}
        return {"input": np.stack(rows), **rate}


def voice_like(voice: int, rate: int, start: int, count: int) -> Array:
    """Samples of a murmur from `start` on: overtones of a gliding pitch with formants, in syllables, and noise."""
    t = np.arange(start, start + count) / rate
    pitch = 110 + 35 * voice
    phase = 2 * np.pi * (pitch * t + 2.5 * np.sin(2 * np.pi * 1.3 * t))
    sound = np.zeros(count)
    for overtone in range(1, 25):
        frequency = overtone * pitch
        loudness = sum(np.exp(-(((frequency - formant) / 160) ** 2)) for formant in (600, 1100, 2500))
        sound += (loudness + 0.05) / overtone**0.5 * np.sin(overtone * phase)
    syllables = np.clip(np.sin(2 * np.pi * 3.1 * t + voice), 0, 1) * (np.sin(2 * np.pi * 0.7 * t) > -0.4)
    noise = np.random.default_rng((voice, start)).standard_normal(count)
    mixed: Array = 0.12 * sound * syllables + 0.003 * noise
    return mixed.astype(np.float32)


def _joint(batch: int) -> dict[str, tuple[int, ...]]:
    return {"state": (2, batch, 128)}


def _separate(batch: int) -> dict[str, tuple[int, ...]]:
    return {"h": (1, batch, 128), "c": (1, batch, 128)}


_STATE = (("stateN", "state"),)
_RATES = (Setting(16000), Setting(8000, batch=3))
_BATCHES = (Setting(), Setting(batch=3))

DETECTORS: dict[str, Detector] = {
    one.name: one
    for one in (
        Detector("silero_vad", _joint, _STATE, _RATES, takes_rate=True),
        Detector("silero_vad_16k_op15", _joint, _STATE, _BATCHES, takes_rate=True),
        Detector("silero_vad_half", _joint, _STATE, _BATCHES),
        Detector("silero_vad_op18_ifless", _joint, _STATE, _RATES, takes_rate=True),
        Detector("silero_vad_openvino_16k", _joint, _STATE, (Setting(), Setting())),
        Detector(
            "silero_vad_16k_sequence", _separate, (("hn", "h"), ("cn", "c")), (Setting(chunks=4), Setting(chunks=9))
        ),
    )
}
