"""Reorder matrices that tell each input's group (`g_idx`). Inputs were quantised in another order than they lie in.

Kernels take groups of neighbours. So only an index that says just this is read as a quantised matrix.
"""

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix, canonical
from unifiedserve.quantization.scheme import Scheme


def assemble(
    name: str, codes: Tensor, scales: Tensor, zeros: Tensor, group_of: Tensor | None, group: int, scheme: Scheme | None
) -> Tensor | QuantizedMatrix:
    """Make a matrix of codes [N, K] and of scales and zeros [N, groups]; a float32 tensor if it has no scheme.

    The index is that of the codes' inputs where these may be in any of the groups. Otherwise it is that of all inputs,
    and is compared with neighbours in groups of `group`. Raises ConfigError for an index of other groups than
    neighbours, where a scheme was promised.
    """
    if scheme is None:
        groups = torch.arange(codes.shape[1]) // group if group_of is None else group_of.long()
        if groups.min() < 0 or groups.max() >= scales.shape[1]:
            raise ConfigError(f"{name}: its g_idx names groups other than its {scales.shape[1]}")
        return codes.float().sub_(zeros.expand(scales.shape)[:, groups]).mul_(scales.float()[:, groups])
    if group_of is not None and not torch.equal(group_of.long(), torch.arange(len(group_of)) // group):
        raise ConfigError(
            f"{name}: its g_idx puts inputs into other groups than their neighbours, "
            "of which the quantization_config says nothing (desc_act or actorder)"
        )
    return canonical(codes, scales, zeros, scheme)
