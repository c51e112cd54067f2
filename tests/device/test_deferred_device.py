"""The stand-in for a GPU: what a CPU computes, but only once the host waits; devices do not mix."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import deferred_device
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import transformers
from torch import Tensor, nn
from torch.nn import functional

DEVICE = "deferred:0"  # a name, as torch knows the device only once a test runs

ORDER = torch.tensor([3, 0, 2, 1])
MASK = torch.tensor([True, False, True, True])
PICTURES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
MATRIX = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))

# each gets a float [4, 6] matrix, indices, a mask and pictures
OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Any]] = {
    "arithmetic": lambda x, i, m, p: (x * 2 + x / 3 - 1) ** 2,
    "comparison and where": lambda x, i, m, p: torch.where(x > 0, x, -1.0),
    "promotion": lambda x, i, m, p: i + 0.5,
    "cast": lambda x, i, m, p: x.to(torch.bfloat16) @ x.to(torch.bfloat16).t(),
    "matmul of batches": lambda x, i, m, p: p @ p.transpose(2, 3),
    "einsum": lambda x, i, m, p: torch.einsum("ij,kj->ik", x, x),
    "linear": lambda x, i, m, p: functional.linear(x[None], x, i.float()),
    "conv": lambda x, i, m, p: functional.conv2d(p, p[:, :, :3, :3], stride=2),
    "softmax": lambda x, i, m, p: x.softmax(-1) + x.log_softmax(0),
    "attention": lambda x, i, m, p: functional.scaled_dot_product_attention(p, p, p, is_causal=True),
    "attention with a mask": lambda x, i, m, p: functional.scaled_dot_product_attention(
        p, p[:, :1], p[:, :1], attn_mask=m.repeat(2)[None], enable_gqa=True
    ),
    "norms": lambda x, i, m, p: functional.rms_norm(functional.layer_norm(x, (6,)), (6,)),
    "batch norm": lambda x, i, m, p: functional.batch_norm(p, p[0, :, 0, 0], p[1, :, 0, 0].abs()),
    "activations": lambda x, i, m, p: functional.silu(x) * functional.gelu(x, approximate="tanh"),
    "sort": lambda x, i, m, p: x.sort(dim=1, descending=True),
    "topk": lambda x, i, m, p: x.topk(3),
    "argmax and amax": lambda x, i, m, p: (x.argmax(-1), x.amax(0), x.max(dim=1)),
    "sums": lambda x, i, m, p: (x.sum(), x.mean(-1, keepdim=True), x.cumsum(0), m.any(), m.all(-1)),
    "index_select": lambda x, i, m, p: x.index_select(0, i),
    "gather": lambda x, i, m, p: x.gather(0, i[:, None].expand(4, 6)),
    "scatter": lambda x, i, m, p: x.scatter(0, i[None], x[:1]),
    "index_copy_": lambda x, i, m, p: x.clone().index_copy_(0, i, x),
    "index_add_": lambda x, i, m, p: x.clone().index_add_(0, i, x),
    "index_put_": lambda x, i, m, p: x.clone().index_put_((i, i), i.float(), accumulate=True),
    "masked_fill_": lambda x, i, m, p: x.clone().masked_fill_(m[:, None], 7),
    "masked_scatter": lambda x, i, m, p: x.masked_scatter(m[:, None], -x),
    "searchsorted": lambda x, i, m, p: torch.searchsorted(x.sort().values, x),
    "embedding": lambda x, i, m, p: functional.embedding(i, x),
    "one_hot": lambda x, i, m, p: functional.one_hot(i, 4),
    "cat and stack": lambda x, i, m, p: torch.stack(torch.cat([x, x], 1).split(4, 1)),
    "unfold": lambda x, i, m, p: x.unfold(1, 3, 2).sum(-1),
    "as_strided": lambda x, i, m, p: x.as_strided((3, 2), (1, 4), 2) + 0,
    "view of another dtype": lambda x, i, m, p: x.view(torch.int32) >> 3,
    "expand": lambda x, i, m, p: x[:, :1].expand(4, 5) + x[:, None, :1],
    "flip, roll, tril": lambda x, i, m, p: (x.flip(0), x.roll(1, 1), x.tril(), x.triu(1)),
    "interpolate": lambda x, i, m, p: functional.interpolate(p, size=(5, 5), mode="bilinear"),
    "pooling": lambda x, i, m, p: (functional.avg_pool2d(p, 2), functional.max_pool2d(p, 2)),
    "histc of integers": lambda x, i, m, p: torch.histc(i.float() if i.is_cpu else i, bins=4, min=0, max=3).long(),
    "nonzero": lambda x, i, m, p: (m.nonzero(), torch.where(x > 0)),
    "masks as indices": lambda x, i, m, p: (x[m], x[:, None][m, 0, 2], torch.masked_select(x, m[:, None])),
    "unique": lambda x, i, m, p: i.remainder(2).unique(return_counts=True),
    "repeat_interleave": lambda x, i, m, p: x.repeat_interleave(i, dim=0),
    "factories": lambda x, i, m, p: (
        torch.zeros(2, 3, dtype=torch.int32, device=x.device) + torch.arange(1, 7, 2, device=x.device),
        torch.full((2,), 3, device=x.device) * torch.tensor([1.5, 2.0], device=x.device),
        x.new_ones(2) + torch.linspace(0, 1, 2, device=x.device) + torch.eye(2, device=x.device),
        torch.zeros_like(x, dtype=torch.bool) | x.new_full((6,), True, dtype=torch.bool),
    ),
}


@pytest.fixture(autouse=True)
def counted_anew() -> Iterator[None]:
    deferred_device.install()
    deferred_device.reset()
    yield
    deferred_device.synchronize()


@pytest.fixture(params=[torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    with request.param():
        yield


def to_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu()
    return [to_host(each) for each in value]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_are_a_cpus(name: str) -> None:
    operands = (MATRIX, ORDER, MASK, PICTURES)
    found = OPERATIONS[name](*(each.to(DEVICE) for each in operands))
    expected = OPERATIONS[name](*operands)
    torch.testing.assert_close(to_host(found), to_host(expected), rtol=0, atol=0)


PROGRAM_STEPS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "select": lambda x, n: x[n % len(x)][None],
    "slice": lambda x, n: x[n % len(x) :],
    "every other": lambda x, n: x[:: 1 + n % 2],
    "transpose": lambda x, n: x.transpose(0, -1),
    "reshape": lambda x, n: x.reshape(-1, x.shape[0]),
    "contiguous": lambda x, n: x.contiguous(),
    "add_": lambda x, n: x.add_(n),
    "mul_": lambda x, n: x.mul_(2).sub_(n),
    "fill": lambda x, n: fill(x, n),
    "copy rows": lambda x, n: copy_rows(x, n),
    "index": lambda x, n: x[torch.arange(len(x), device=x.device).flip(0)],
    "index_add_": lambda x, n: x.index_add_(0, torch.zeros(1, dtype=torch.long, device=x.device), x[-1:].clone()),
    "cumsum": lambda x, n: x.cumsum(0),
}


def fill(x: Tensor, n: int) -> Tensor:
    x[n % len(x)] = n
    return x


def copy_rows(x: Tensor, n: int) -> Tensor:
    x[: len(x) // 2] = x[len(x) - len(x) // 2 :].clone()
    return x


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(PROGRAM_STEPS)), st.integers(0, 5)), max_size=12),
    waits_after=st.integers(0, 12),
)
def test_programs_of_views_and_writes(steps: list[tuple[str, int]], waits_after: int) -> None:
    results = []
    for device in ("cpu", DEVICE):
        base = torch.arange(24).view(4, 6).to(device, copy=True)
        tensors = [base]
        for number, (name, argument) in enumerate(steps):
            tensors.append(PROGRAM_STEPS[name](tensors[-1], argument))
            if number == waits_after:
                deferred_device.synchronize()
        results.append([tensor.cpu() for tensor in tensors])
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


def test_strides_and_offsets_are_known_at_once() -> None:
    host, device = torch.zeros(4, 6), torch.zeros(4, 6, device=DEVICE)
    for view in (lambda x: x.t()[2:], lambda x: x[1:, ::2].unsqueeze(0), lambda x: x.view(torch.uint8)[1]):
        expected, found = view(host), view(device)
        assert found.device == torch.device(DEVICE)
        assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert found.storage_offset() == expected.storage_offset()
        assert found.data_ptr() - device.data_ptr() == expected.data_ptr() - host.data_ptr()
    assert deferred_device.waits() == []


def test_host_memory_changes_when_the_host_waits() -> None:
    memory = torch.zeros(4, 3)
    rows = deferred_device.view(memory)
    rows[1:3] = 5.0
    rows.index_copy_(0, torch.tensor([0], device=DEVICE), torch.ones(1, 3, device=DEVICE))
    assert not memory.any()
    assert deferred_device.pending() > 0
    deferred_device.synchronize()
    assert memory.tolist() == [[1] * 3, [5] * 3, [5] * 3, [0] * 3]
    assert deferred_device.pending() == 0


def test_what_is_overwritten_before_a_wait_is_read_overwritten() -> None:
    memory = torch.ones(3)
    doubled = deferred_device.view(memory) * 2
    memory.fill_(10)
    assert doubled.tolist() == [20, 20, 20]


def test_uploads_are_read_at_once_unless_they_do_not_block() -> None:
    source = torch.ones(2)
    blocking, late = source.to(DEVICE), source.to(DEVICE, non_blocking=True)
    target = torch.zeros(2, device=DEVICE)
    target.copy_(source, non_blocking=True)
    source.fill_(3)
    assert blocking.tolist() == [1, 1]
    assert late.tolist() == target.tolist() == [3, 3]
    assert deferred_device.uploads() == 1


def test_downloads_are_there_at_once_unless_they_do_not_block() -> None:
    ones = torch.ones(2, device=DEVICE)
    late = ones.to("cpu", non_blocking=True)
    target = torch.zeros(2).copy_(ones, non_blocking=True)
    assert late.isnan().all()
    assert not target.any()
    assert ones.cpu().tolist() == late.tolist() == target.tolist() == [1, 1]


WAITING: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x[0].item(),
    "int": lambda x: int(x[0]),
    "bool": lambda x: bool(x.any()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy": lambda x: torch.zeros(3).copy_(x),
    "equal": lambda x: torch.equal(x, x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "write under a mask": lambda x: x.__setitem__(x > 0, x.new_ones(())),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "repeats": lambda x: x.repeat_interleave(x),
    "number as index": lambda x: x[x[0]],
}
NOT_WAITING: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: x + 1,
    "index": lambda x: x[x],
    "write by index": lambda x: x.__setitem__(x.clone(), 4),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "repeats of known sum": lambda x: x.repeat_interleave(x, output_size=3),
    "upload": lambda x: torch.arange(3).to(DEVICE),
    "scalar of the host": lambda x: x + torch.tensor(1),
    "shape": lambda x: (len(x), x.numel(), x.is_contiguous(), repr(x)),
}


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", WAITING)
def test_the_host_waits_once(name: str) -> None:
    x = torch.arange(3, device=DEVICE)
    WAITING[name](x)
    assert len(deferred_device.waits()) == 1
    deferred_device.reset()
    assert deferred_device.waits() == []


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", NOT_WAITING)
def test_the_host_does_not_wait(name: str) -> None:
    NOT_WAITING[name](torch.arange(3, device=DEVICE))
    assert deferred_device.waits() == []
    assert deferred_device.copies() == []
    assert deferred_device.pending() > 0


MIXING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda there, here: there + here,
    "host first": lambda there, here: here + there,
    "in place": lambda there, here: there.add_(here),
    "in place on the host": lambda there, here: here.add_(there),
    "in place on a number": lambda there, here: torch.zeros(()).add_(there.sum()),
    "where": lambda there, here: torch.where(here > 0, there, 0.0),
    "matmul": lambda there, here: there @ here,
    "linear": lambda there, here: functional.linear(there, here),
    "cat": lambda there, here: torch.cat([there, here]),
    "index_select": lambda there, here: there.index_select(0, here[0].long()),
    "index_copy_": lambda there, here: there.index_copy_(0, here[0].long(), there),
    "embedding": lambda there, here: functional.embedding(here.long(), there),
    "embedding of one": lambda there, here: functional.embedding(here[0, 0].long(), there),
    "index_put_": lambda there, here: there.__setitem__(torch.zeros(2, dtype=torch.long, device=DEVICE), here),
    "attention": lambda there, here: functional.scaled_dot_product_attention(there, here, here),
    "out": lambda there, here: torch.add(there, there, out=here),
    "host indexed": lambda there, here: here.index_select(0, there[0].long()),
}


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", MIXING)
def test_devices_do_not_mix(name: str) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXING[name](torch.ones(2, 2, device=DEVICE), torch.ones(2, 2))


def test_indices_of_the_host_are_counted() -> None:
    x = torch.arange(8, device=DEVICE).view(4, 2)
    index = torch.tensor([2, 0])
    rows, masked = x[index], x[MASK]
    x[index] = 9
    index.fill_(1)
    assert len(deferred_device.copies()) == 3
    assert deferred_device.waits() == []
    assert rows.tolist() == [[4, 5], [0, 1]]
    assert masked.tolist() == [[0, 1], [4, 5], [6, 7]]
    assert x.tolist() == [[9, 9], [2, 3], [9, 9], [6, 7]]


def test_conversions_to_numpy_are_refused() -> None:
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(TypeError, match="can't convert deferred:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert"):
        x.__array__()
    with pytest.raises(BufferError):
        torch.from_dlpack(x)


def test_what_the_device_lacks_is_refused() -> None:
    x = torch.ones(2, 2, device=DEVICE)
    for use in (lambda: torch.randn(3, device=DEVICE), lambda: x.bernoulli_(), lambda: x.transpose_(0, 1)):
        with pytest.raises(NotImplementedError, match="deferred"):
            use()


def test_wrong_sizes_are_refused_at_once() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    for use in (lambda: x @ x, lambda: x + x[:, :2], lambda: x.view(4), lambda: x.copy_(torch.ones(4))):
        with pytest.raises(RuntimeError):
            use()
    with pytest.raises(IndexError):
        x[torch.ones(3, dtype=torch.bool, device=DEVICE)]


def test_errors_of_values_come_when_the_host_waits() -> None:
    x = torch.ones(2, device=DEVICE)
    bad = x.index_select(0, torch.tensor([5], device=DEVICE))
    assert bad.shape == (1,)
    with pytest.raises(RuntimeError, match=r"aten\.index_select.* failed on the device"):
        x.cpu()
    assert deferred_device.pending() == 0
    assert torch.ones(1, device=DEVICE).item() == 1


def test_functions_are_launched_as_kernels() -> None:
    def kernel(values: Tensor, out: Tensor) -> None:
        out.copy_(values.cumsum(0))

    values, out = torch.arange(3, device=DEVICE), torch.zeros(3, dtype=torch.long, device=DEVICE)
    values += 1
    deferred_device.launch(kernel, values, out)
    doubled = out * 2
    assert deferred_device.waits() == []
    assert doubled.tolist() == [2, 6, 12]
    with pytest.raises(RuntimeError, match="same device"):
        deferred_device.launch(kernel, values, torch.zeros(3))


def test_modules_load_state() -> None:
    source = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    state = {name: deferred_device.view(value.detach()) for name, value in source.state_dict().items()}
    module.load_state_dict(state, assign=True)
    assert all(parameter.device == torch.device(DEVICE) for parameter in module.parameters())
    assert all(isinstance(parameter, nn.Parameter) for parameter in module.parameters())
    with torch.inference_mode():
        found = module(MATRIX[:, :3].to(DEVICE))
        assert torch.equal(found.cpu(), source(MATRIX[:, :3]))
        assert torch.equal(source.to(DEVICE)(MATRIX[:, :3].to(DEVICE)).cpu(), found.cpu())


def test_copies_and_storages() -> None:
    module = nn.Linear(2, 2).to(DEVICE)
    copied = copy.deepcopy(module)
    assert isinstance(copied.weight, nn.Parameter)
    assert copied.weight.tolist() == module.weight.tolist()
    with torch.no_grad():
        copied.weight.zero_()
    assert module.weight.any()
    assert module.weight[0].untyped_storage().data_ptr() == module.weight.untyped_storage().data_ptr()
    assert copied.weight.untyped_storage().data_ptr() != module.weight.untyped_storage().data_ptr()
    with pytest.raises(NotImplementedError, match="cannot be saved"):
        pickle.dumps(module.weight)


def test_a_language_model_is_a_cpus_to_the_bit() -> None:
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(0, 64, (2, 9))
    with torch.inference_mode():
        expected = model(tokens).logits
        answer = model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
        model.to(DEVICE)
        tokens = tokens.to(DEVICE)
        assert torch.equal(model(tokens).logits.cpu(), expected)
        found = model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
        assert torch.equal(found.cpu(), answer)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_a_vision_model_is_a_cpus_to_the_bit(family: str) -> None:
    config = getattr(transformers, f"{family}VisionConfig")(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=8
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}VisionModel")(config).eval()
    expected = model(PICTURES)
    found = model.to(DEVICE)(PICTURES.to(DEVICE))
    assert deferred_device.waits() == []
    assert torch.equal(found.last_hidden_state.cpu(), expected.last_hidden_state)
    assert torch.equal(found.pooler_output.cpu(), expected.pooler_output)


def test_nothing_changes_for_the_host() -> None:
    assert torch.ones(2).device == torch.device("cpu")
    assert not torch.ones(2).is_pinned()
    weight = torch.ones(3, requires_grad=True)
    (weight * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2, 2, 2]
    assert deferred_device.pending() == 0
