"""Compiled inference with padding: nothing is computed of it, and one program serves all masks."""

from __future__ import annotations

from typing import Any, Final

import pytest
import tensorbus as tb
from tensorbus.control_flow.sized_runs import MIN_SIZE, SizedRuns
from tensorbus.nn.attention import packed_rows

from error_bounds import assert_alike
from test_encoder_padding import ATTENTION, PADDING, WIDTH, attention_case, encoder, ends, padding_of

_BETWEEN: Final = {"input", "gather", "reshape", "permute_dims", "slice", "result", "where", "cast"}
"""Ops that bring rows to their places in the batch, or weights into another form."""


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls of any size leave padding out; how many rows each run of a program for rows had.

    In such a program all that is computed of vectors, but for attention by heads, has that many rows.
    """
    seen: list[int] = []
    plain = SizedRuns.__call__

    def noted(runs: SizedRuns, values: Any) -> Any:
        names = [name for name, *_ in runs._symbols]
        (own,) = [name for name in names if name.startswith("n")]
        seen.append(values[-1][names.index(own)])
        for node in runs._request.graph:
            if len(node.shape) == 2 and node.op not in _BETWEEN and node.spec.dtype.is_floating:
                assert str(node.shape[0]) == own, node
        return plain(runs, values)

    monkeypatch.setattr(SizedRuns, "__call__", noted)
    for fewest in ("_FEWEST_PRODUCTS", "_FEWEST_PRODUCTS_IN_STREAMS"):
        monkeypatch.setattr(packed_rows, fewest, 0)
    return seen


def real_rows(padding: Any) -> int:
    """Return how many places a program works on: those that are no padding, and two at least."""
    return max(int((~padding).sum()), MIN_SIZE)


@pytest.mark.parametrize("name", ATTENTION)
def test_keys_that_are_padding_are_not_projected(device: str, name: str, rows: list[int]) -> None:
    """Of one program for all masks, whole; its results are those of a call that projects everything."""
    kind = tb.bfloat16 if name == "bfloat16" else tb.float32
    for added in (False, True):
        module, args, named = attention_case(name, "none", added, kind, device)
        compiled = tb.compile(module, fullgraph=True)
        for padding in PADDING:
            *_, mask = attention_case(name, padding, added, kind, device)[1]
            right = module(*args[:3], mask, **named)  # parameters may learn, so that all is projected
            rows.clear()
            with tb.no_grad():
                result = compiled(*args[:3], mask, **named)
            assert rows == [real_rows(padding_of(padding, 3, 5, device))], (padding, added)
            ours, due = ([x for x in each if x is not None] for each in (result, right))
            assert_alike(ours, [x.detach() for x in due], 2 * WIDTH, kind, message=f"{padding} {added}")
        assert compiled.recompiles == []


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "length first"])
@pytest.mark.parametrize("checks", [True, False], ids=["mask checked", "unchecked"])
def test_layers_compute_no_padding(device: str, batch_first: bool, checks: bool, rows: list[int]) -> None:
    """Of one program for all masks and lengths."""
    settings: Any = {"norm_first": True, "activation": "gelu"} if batch_first else {}
    model = encoder(device, batch_first=batch_first, mask_check=checks, **settings)
    compiled = tb.compile(model, fullgraph=True, dynamic=True)
    for length in (5, 7):
        x = tb.random.normal((3, length, WIDTH) if batch_first else (length, 3, WIDTH), device=device)
        seen = tb.triu(tb.ones((length, length), dtype=tb.bool, device=device), k=1)
        for kind in PADDING:
            padding, mask = padding_of(kind, 3, length, device), seen if batch_first else None
            if checks:
                padding = tb.where(padding, float("-inf"), 0.0)
            with tb.no_grad():
                right = ends(model, x, mask, padding, batch_first)
                rows.clear()
                out = compiled(x, mask, padding)
            assert rows == [real_rows(padding == float("-inf") if checks else padding)], kind
            assert tb.max(tb.abs(out - right)) < 2e-5, kind
    assert len(compiled.recompiles) == 0


def test_another_sequence_is_not_seen(device: str, rows: list[int]) -> None:
    model, x = encoder(device, batch_first=True), tb.ones((3, 5, WIDTH), device=device)
    x[1], padding = float("nan"), padding_of("behind", 3, 5, device)
    with tb.no_grad():
        out = tb.compile(model, fullgraph=True)(x, src_key_padding_mask=padding)
    assert rows == [real_rows(padding)]
    assert not tb.any(tb.isnan(out[::2]))
    assert tb.all(out[1, 3:] == 0)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_results_have_one_dtype_whatever_is_padding(device: str, compiled: bool, rows: list[int]) -> None:
    """Also where there is nothing to multiply, of operands whose dtypes differ."""
    model = encoder(device, batch_first=True)
    attention, *_ = attention_case("shares of heads", "none", False, tb.float32, device)
    for call in (
        lambda x, padding: model(x, src_key_padding_mask=padding),
        lambda x, padding: attention(x, x, x, padding)[0],
    ):
        run = tb.compile(call) if compiled else call
        for kind in PADDING:
            with tb.no_grad():
                out = run(
                    tb.ones((3, 5, WIDTH), dtype=tb.float16, device=device), padding_of(kind, 3, 5, device)
                )
            assert out.dtype is tb.float32, kind


def test_where_a_program_computes_padding(device: str, rows: list[int]) -> None:
    """What learns, few products, and transforms, whose examples have numbers of their own."""
    module, (x, _, _, padding), _ = attention_case("shares of heads", "anywhere", False, tb.float32, device)
    compiled = tb.compile(lambda x, padding: module(x, x, x, padding)[0])
    right = compiled(x, padding)
    with tb.no_grad():
        each = tb.vmap(lambda x, padding: compiled(x[None], padding[None])[0])(x, padding)
        assert not rows
        with tb.autocast(device, dtype=tb.bfloat16) if device != "refdev" else tb.no_grad():
            narrow = compiled(x, padding)
        assert rows == [real_rows(padding)]
    assert_alike([each], [right.detach()], 2 * WIDTH)
    assert_alike([narrow.to(tb.float32)], [right.detach()], 2 * WIDTH, tb.bfloat16)
