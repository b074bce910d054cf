"""Names of PyTorch's that are others here: errors say which, and docs/pytorch.md lists them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.compat.torch_modules import MODULES
from tensorbus.compat.torch_names import (
    ALIASES,
    DISTRIBUTED,
    DISTRIBUTIONS,
    EXPRESSIONS,
    FORMS,
    FUNCTIONS,
    HOMES,
    IN_PLACE,
    METHOD_ALIASES,
    METHOD_FORMS,
    METHODS,
    NUMPY,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "pytorch.md"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_missing_function_names_one_that_is_there(name: str) -> None:
    assert not hasattr(tb, name)
    assert name not in dir(tb)
    with pytest.raises(
        AttributeError, match=rf"no attribute '{name}'; PyTorch's {name} is here tensorbus\."
    ) as raised:
        getattr(tb, name)
    assert raised.value.name == name
    result = tb
    named = re.match(r"[\w.]+", FUNCTIONS[name])
    assert named
    for part in named[0].split("."):
        result = getattr(result, part)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_missing_function_that_python_writes_otherwise(name: str) -> None:
    assert not hasattr(tb, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; PyTorch's {name} is here ") as raised:
        getattr(tb, name)
    assert str(raised.value).endswith(EXPRESSIONS[name])


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *EXPRESSIONS, *METHODS} - {"clone", "cuda"}))
def test_a_missing_attribute_of_a_tensor(name: str) -> None:
    for x in (tb.ones((2, 3)), tb.nn.Parameter(tb.ones((2, 3)))):
        assert not hasattr(x, name)
        assert name not in dir(x)
        kind = type(x).__name__
        with pytest.raises(
            AttributeError, match=rf"'{kind}' object has no attribute '{name}'; PyTorch's {name} is"
        ):
            getattr(x, name)
        with pytest.raises(AttributeError, match=f"PyTorch's {name} is here"):
            setattr(x, name, x)


@pytest.mark.parametrize("name", NUMPY)
def test_attributes_of_arrays(name: str) -> None:
    x = tb.ones((2, 3))
    assert not hasattr(x, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; NumPy's {name} is here x\."):
        getattr(x, name)


@pytest.mark.parametrize("name", HOMES)
def test_what_one_module_has_is_named_with_it(name: str) -> None:
    assert not hasattr(tb, name)
    wanted = f"'{name}'; PyTorch's {name} is here tensorbus.{HOMES[name]}.{name}"
    for owner in (tb, tb.ones((2, 2))):
        if not hasattr(owner, name):
            with pytest.raises(AttributeError, match=re.escape(wanted)):
                getattr(owner, name)
    actual = tb
    for part in f"{HOMES[name]}.{name}".split("."):
        actual = getattr(actual, part)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("copysign", "floor_divide", "fmod", "remainder", "nextafter", "xlogy", "hypot"), (0.5,)),
    **dict.fromkeys(("atan2", "heaviside", "clamp_min", "clamp_max"), (tb.full((2, 2), 0.5, device="cpu"),)),
    **dict.fromkeys(("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"), (0.5,)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (tb.eye(2, device="cpu") > 0,)),
    **dict.fromkeys(("cumsum", "cumprod"), (0,)),
    "renorm": (2, 0, 0.1),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv", "addr"), ()),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_methods_that_change_a_tensor(name: str) -> None:
    data = [[0.25, 0.5], [0.75, 0.125]]
    at = tb.asarray([[0, 1]], device="cpu")
    m, cube = tb.asarray(data, device="cpu"), tb.ones((2, 2, 2), device="cpu")
    arguments: dict[str, tuple[Any, ...]] = {
        **ARGUMENTS, "addmm": (m, m), "addbmm": (cube, cube), "addmv": (cube[0], m[0]), "addr": (m[0], m[1]),
        "index_add": (0, at[0], m), "index_copy": (0, at[0], m), "index_fill": (0, at[0, :1], 2.0),
        "index_put": ((at[0], at[0]), 3.0), "masked_scatter": (m > 0.3, m * 2), "scatter": (0, at, m),
        "scatter_add": (0, at, m), "scatter_reduce": (0, at, m, "amax"), "baddbmm": (cube, cube),
    }  # fmt: skip
    whole = name.startswith("bitwise") or name in ("gcd", "lcm")
    x = tb.asarray([[6, 4], [3, 9]], device="cpu") if whole else cube * 0.5 if name == "baddbmm" else m * 1
    x = x + 1 if name == "acosh" else x[0] if name == "addmv" else x
    rest = (x * 0 + 1,) if whole and name != "bitwise_invert" else arguments.get(name, ())
    expected = getattr(x, name)(*rest)
    assert getattr(x, f"{name}_")(*rest) is x
    assert x.tolist() == expected.to(x.dtype).tolist()


@pytest.mark.parametrize("alias", ALIASES)
def test_second_names(alias: str) -> None:
    result: Any = tb
    for part in ALIASES[alias].split("."):
        result = getattr(result, part)
    assert getattr(tb, alias) is result
    assert alias in dir(tb)
    x, method = tb.ones((2, 3), device="cpu"), ALIASES[alias].rpartition(".")[2]
    if callable(result) and method in vars(tb.Tensor) and alias not in METHOD_FORMS:
        assert getattr(x, alias).__name__ == getattr(x, method).__name__


def test_forms_of_pytorch() -> None:
    x = tb.asarray([[1.0, -2.0, 3.0]], device="cpu")
    for name in (*FORMS, *METHOD_FORMS, *METHOD_ALIASES):
        assert callable(getattr(x, name, None) or getattr(tb, name)), name
    assert (x.numel(), x.nelement(), x.dim(), x.ndimension(), x.element_size()) == (3, 3, 2, 2, 4)
    assert (x.size, x.size(), x.size(-1), x.size(dim=0)) == (3, (1, 3), 3, 1)
    assert x.transpose(0, 1).shape == x.t().shape == x.H.shape == x.permute(1, 0).shape == (3, 1)
    assert x.expand(2, -1).shape == x.expand_as(tb.ones((2, 3), device="cpu")).shape == (2, 3)
    assert x.contiguous() is x
    assert [x.long().dtype, x.half().dtype, x.type_as(x > 0).dtype] == [tb.int64, tb.float16, tb.bool]
    assert x.new_zeros(2, 2).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert (x.new_ones((1,)).dtype, x.new_full((1,), 2).tolist(), x.new_tensor([1]).dtype) == (
        tb.float32, [2.0], tb.float32,
    )  # fmt: skip
    assert x.unflatten(1, (3, -1)).shape == (1, 3, 1)
    assert tb.max_with_indices(x, 1).indices.tolist() == [2]
    assert tb.min_with_indices(x, dim=1, keepdim=True).values.tolist() == [[-2.0]]
    assert tb.is_tensor(x)
    assert not tb.is_tensor(1)
    assert x.is_floating_point()
    assert not tb.is_complex(x)
    assert tb.msort(x.T).tolist() == [[-2.0], [1.0], [3.0]]
    assert tb.isneginf(x / 0.0).tolist() == [[False, True, False]]


@pytest.mark.parametrize("rounding", [None, "trunc", "floor"])
def test_rounded_quotients(rounding: str | None) -> None:
    for x, y in (([7.0, -7.0, 5.0], [2.0, 2.0, -2.0]), ([7, -7, 5], [2, 2, -2])):
        a, b = tb.asarray(x, device="cpu"), tb.asarray(y, device="cpu")
        plain = np.asarray(x) / np.asarray(y)
        expected = {None: plain, "trunc": np.trunc(plain), "floor": np.floor(plain)}[rounding]
        actual = a.div(b, rounding_mode=rounding)
        assert actual.tolist() == tb.divide(a, b, rounding_mode=rounding).tolist() == expected.tolist()
        assert actual.dtype is (tb.float32 if rounding is None else a.dtype)
    with pytest.raises(tb.ArgumentError, match="rounding_mode is None, 'trunc' or 'floor', got 'up'"):
        a.divide(b, rounding_mode="up")


PAIRS: dict[str, bool] = {
    "v, i = x.max(1)": True,
    "v, i = tb.max(x, dim=-1, keepdim=True)": True,
    "v, i = (x * 2).exp().min(0)": True,
    "v, i = x.median(1)": True,
    "v, i = x.sort(dim=1, descending=True)": True,
    "v, i = x.max(axis=1)": False,
    "v, i = x": False,
    "v, i = x.sum(1)": False,
    "v, i = f(x.max(1))": False,
    "v, i = [r for r in x.max(1)]": False,
    "v, i = list(x.max(1))": False,
}


@pytest.mark.parametrize("line", PAIRS)
def test_values_and_indices_are_not_unpacked_from_one_tensor(line: str) -> None:
    scope = {"x": tb.ones((2, 2), device="cpu"), "tb": tb, "f": lambda x: x}
    if PAIRS[line]:
        with pytest.raises(TypeError, match="one tensor here; values and indices come from"):
            exec(line, scope)
    else:
        exec(line, scope)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_classes_of_distributions_name_what_draws(name: str) -> None:
    result = tb
    for part in DISTRIBUTIONS[name].partition("(")[0].split("."):
        result = getattr(result, part)
    with pytest.raises(AttributeError, match=f"PyTorch's {name} is here tensorbus"):
        getattr(tb.distributions, name)


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_names_of_torch_distributed_say_what_stands_for_them(name: str) -> None:
    with pytest.raises(AttributeError, match=f"PyTorch's {name} is here tensorbus.distributed") as raised:
        getattr(tb.distributed, name)
    text = DISTRIBUTED[name]
    assert str(raised.value).endswith(text)
    code = f"tb.{text.partition(': ')[0]}"

    def rank() -> bool:
        module, x = tb.nn.Linear(2, 2, device="cpu"), tb.ones((2, 2), device="cpu")
        output, part = tb.zeros((4, 2), device="cpu"), tb.zeros((1, 2), device="cpu")
        scope = {"lists_of_ranks": [[1], [0]], "url": "memory://", "seconds": 60.0, "x": x * 1, "part": part}
        tb.distributed.all_reduce(x)
        result = eval(code, {"tb": tb, "module": module, "output": output, **scope})
        return (result is None) == (name == "destroy_process_group" or name.endswith("_single"))

    if ".init(" in code:
        eval(code, {"tb": tb, "seconds": 60.0})
        tb.distributed.shutdown()
    elif ".communicators()" in code:
        installed = name.split("_")[1].replace("gloo", "tcp") in tb.distributed.communicators()
        assert (eval(code, {"tb": tb}) is not None) is installed
    else:
        assert all(tb.distributed.run_ranks(rank, 2))


@pytest.mark.parametrize("path", MODULES)
def test_missing_modules_say_what_stands_for_them(path: str) -> None:
    module, _, name = f"tensorbus.{path}".rpartition(".")
    for line in (f"from {module} import {name}", f"import {module}.{name}", f"from {module}.{name} import x"):
        if path == "nn.modules" or path.startswith("distributed.tensor"):  # core has packages of these names
            line = f"from tensorbus.{path} import nonsense"
        with pytest.raises(ImportError) as raised:
            exec(line)
        text = str(raised.value).partition(" is here ")[2]
        assert text in (MODULES[path], *(MODULES[p] for p in MODULES if path.startswith(f"{p}."))), line
    for names in re.findall(r"tensorbus\.([\w.]+)", MODULES[path]):
        result = tb
        for part in names.split("."):
            result = getattr(result, part)


def test_failed_imports_name_the_module_that_has_it() -> None:
    for line, text in (
        ("from tensorbus.distributed.tensor import DTensor", "it is tensorbus.distributed.DTensor"),
        ("from tensorbus.distributed import init_process_group", "is here tensorbus.distributed.init()"),
        ("from tensorbus.distributions import Normal", "is here tensorbus.normal(shape, mean, std)"),
        ("from tensorbus.nn import relu", "it is tensorbus.nn.functional.relu"),
        ("from tensorbus import Linear, ones", "it is tensorbus.nn.Linear"),
        ("from tensorbus.distributions import nonsense", "cannot import name 'nonsense'"),
        ("from tensorbus import nonsense", "cannot import name 'nonsense'"),
        ("import tensorbus.nonsense", "No module named 'tensorbus.nonsense'"),
    ):
        with pytest.raises(ImportError, match=re.escape(text)):
            exec(line)
    with pytest.raises(AttributeError, match=r"PyTorch's nn\.DataParallel is here tensorbus\.distributed\.r"):
        tb.nn.DataParallel  # noqa: B018


def test_functions_that_take_a_tensor_first_are_methods() -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, math.nan]])
    assert x.nan_to_num(4.0).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert x[0].addcmul(x[0], x[0], value=2).tolist() == [3.0, 10.0]
    assert x[0].kron(x[0]).tolist() == [1.0, 2.0, 2.0, 4.0]
    assert x[0].multinomial(3, replacement=True).shape == (3,)
    assert tb.asarray([4, 6]).gcd(tb.asarray([6, 9])).tolist() == [2, 3]
    for name in ("addcdiv", "corrcoef", "cov", "histogram", "lcm"):
        assert getattr(x, name).__name__ == name


def test_methods_that_stand_for_others_are_there() -> None:
    x = tb.ones((2, 3))
    for text in (*EXPRESSIONS.values(), *METHODS.values(), *NUMPY.values()):
        for name in re.findall(r"\bx\.(\w+)", text):
            assert hasattr(x, name), text
        for name in re.findall(r"tensorbus\.(\w+)", text):
            assert hasattr(tb, name), text


def test_modules_move_by_one_name() -> None:
    for name in ("cpu", "cuda"):
        with pytest.raises(AttributeError, match=rf"PyTorch's {name} is here module\.to\('{name}'\)"):
            getattr(tb.nn.Linear(2, 2), name)
    with pytest.raises(AttributeError, match="what replicate returns, the module itself"):
        tb.nn.Linear(2, 2).module  # noqa: B018


def test_arguments_of_other_names_are_told_what_there_is() -> None:
    module = tb.nn.Linear(2, 2)
    for call, form in (
        (lambda: tb.distributed.init(backend="gloo"), "init(*, rank=None, world_size=None"),
        (lambda: tb.distributed.init("gloo"), "init(*, rank=None, world_size=None"),
        (lambda: tb.distributed.replicate(module, device_ids=[0]), "replicate(module, mesh=None, *"),
        (lambda: tb.distributed.fully_shard(module, device_mesh=None), "fully_shard(module, mesh=None"),
    ):
        with pytest.raises(TypeError, match=re.escape(f"It is called as {form}")):
            call()


def test_other_names_are_missing_as_before() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tensorbus' has no attribute 'nonsense'$"):
        tb.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'nonsense'$"):
        tb.ones(1).nonsense  # noqa: B018


def test_the_document_lists_them() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, value in {**FUNCTIONS, **EXPRESSIONS}.items():
        assert f"| `{name}` | `{value}` |" in text
    for name, value in ALIASES.items():
        assert re.search(rf"\| `{re.escape(value)}` \| [^\n]*`{name}`", text)
    for name in (*FORMS, *METHOD_FORMS, *METHOD_ALIASES):
        assert f"`{name}`" in text
    for name, value in {**DISTRIBUTIONS, **DISTRIBUTED}.items():
        assert f"| `{name}` | `{value}` |" in text
    for name in (*METHODS, *NUMPY):
        assert f"| `{name}` | `" in text
    for name, value in MODULES.items():
        assert f"| `{name}` | `{value}` |" in text


def test_compiled_functions_may_ask_for_them() -> None:
    compiled = tb.compile(lambda x: x.detach_() if hasattr(x, "detach_") else x.permute(1, 0))
    for _ in range(3):
        assert compiled(tb.ones((2, 3))).shape == (3, 2)
    assert not compiled.reasons
