"""Which passes run by default."""

from __future__ import annotations

from collections.abc import Iterable

from aicore.passes.base import Pass, order_passes
from aicore.passes.cancel_transposes import CancelTransposes, RelabelTransposes
from aicore.passes.choose_branches import ChooseBranches
from aicore.passes.decompose_unsupported import DecomposeUnsupported
from aicore.passes.fold_batchnorm import FoldBatchnorm
from aicore.passes.fold_constants import FoldConstants, FoldKnown, FoldWeights
from aicore.passes.fold_shapes import FoldShapes
from aicore.passes.fuse_attention import FuseAttention
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_normalization import FuseNormalization
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.fuse_scale import FuseScale
from aicore.passes.fuse_training import FuseTraining
from aicore.passes.merge_common import MergeCommon
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.passes.read_views import ReadViews
from aicore.passes.recognise_functions import RecogniseFunctions
from aicore.passes.reduce_sums import ReduceSums
from aicore.passes.remove_dead import RemoveDead
from aicore.passes.remove_identities import RemoveIdentities
from aicore.passes.simplify_arithmetic import SimplifyArithmetic


def default_passes(extra: Iterable[Pass] = ()) -> tuple[Pass, ...]:
    """For a graph as it comes from a file or a layer: shapes may be symbolic. Runs once for each program.

    extra: passes of plugins; they find their place by phase, `before` and `after`.
    """
    return order_passes(
        (
            FoldConstants(),
            FoldShapes(),
            ChooseBranches(),
            RemoveIdentities(),
            CancelTransposes(),
            SimplifyArithmetic(),
            MergeCommon(),
            FoldBatchnorm(),
            FoldWeights(),
            RecogniseFunctions(),
            FuseAttention(),
            FuseLinear(),
            ReadViews(),
            FuseNormalization(),
            FuseTraining(),
            PlaceChannelsLast(),
            FuseScale(),
            FusePointwise(),
            *required_passes(),
            RelabelTransposes(),
            RemoveDead(),
            *extra,
        )
    )


def specialise_passes() -> tuple[Pass, ...]:
    """For an optimised graph that was just inferred again for the shapes of one input signature."""
    return order_passes(
        (
            FoldShapes(),
            FoldKnown(),
            ChooseBranches(),
            RemoveIdentities(),
            ReadViews(),
            *required_passes(),
            RelabelTransposes(),
            RemoveDead(),
        )
    )


def required_passes() -> tuple[Pass, ...]:
    """Without these a program may not run at all; they remain when nothing is to be optimised."""
    return (ReduceSums(), DecomposeUnsupported())
