"""Names of PyTorch's that are others here: errors say which, and docs/pytorch.md lists them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus.compat.torch_names import (
    DISTRIBUTIONS,
    EXPRESSIONS,
    FUNCTIONS,
    HOMES,
    IN_PLACE,
    METHODS,
    NUMPY,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytorch.md"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_missing_function_names_one_that_is_there(name: str) -> None:
    assert not hasattr(tb, name)
    assert name not in dir(tb)
    with pytest.raises(
        AttributeError, match=rf"no attribute '{name}'; PyTorch's {name} is here tensorbus\."
    ) as told:
        getattr(tb, name)
    assert told.value.name == name
    found = tb
    named = re.match(r"[\w.]+", FUNCTIONS[name])
    assert named
    for part in named[0].split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_missing_function_that_python_writes_otherwise(name: str) -> None:
    assert not hasattr(tb, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; PyTorch's {name} is here ") as told:
        getattr(tb, name)
    assert str(told.value).endswith(EXPRESSIONS[name])


@pytest.mark.parametrize(
    "name", sorted({*FUNCTIONS, *EXPRESSIONS, *METHODS} - {"clone", "clamp_max", "clamp_min"})
)
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
    found = tb
    for part in f"{HOMES[name]}.{name}".split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("name", IN_PLACE)
def test_methods_that_would_change_a_tensor(name: str) -> None:
    x = tb.ones((2, 2))
    assert callable(getattr(x, name))
    with pytest.raises(AttributeError, match=rf"PyTorch's {name}_ is here x\.copy_\(x\.{name}\(\.\.\.\)\)"):
        getattr(x, f"{name}_")


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_classes_of_distributions_name_what_draws(name: str) -> None:
    found = tb
    for part in DISTRIBUTIONS[name].partition("(")[0].split("."):
        found = getattr(found, part)
    with pytest.raises(AttributeError, match=f"PyTorch's {name} is here tensorbus"):
        getattr(tb.distributions, name)


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
    for said in (*EXPRESSIONS.values(), *METHODS.values(), *NUMPY.values()):
        for name in re.findall(r"\bx\.(\w+)", said):
            assert hasattr(x, name), said
        for name in re.findall(r"tensorbus\.(\w+)", said):
            assert hasattr(tb, name), said


def test_modules_move_by_one_name() -> None:
    for name in ("cpu", "cuda"):
        with pytest.raises(AttributeError, match=rf"PyTorch's {name} is here module\.to\('{name}'\)"):
            getattr(tb.nn.Linear(2, 2), name)


def test_other_names_are_missing_as_before() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tensorbus' has no attribute 'nonsense'$"):
        tb.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'nonsense'$"):
        tb.ones(1).nonsense  # noqa: B018


def test_the_document_lists_them() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, found in {**FUNCTIONS, **EXPRESSIONS}.items():
        assert f"| `{name}` | `{found}` |" in text
    for name, found in DISTRIBUTIONS.items():
        assert f"| `{name}` | `{found}` |" in text
    for name in (*METHODS, *NUMPY):
        assert f"| `{name}` | `" in text


def test_compiled_functions_may_ask_for_them() -> None:
    compiled = tb.compile(lambda x: x.permute(1, 0) if hasattr(x, "permute") else x.permute_dims(1, 0))
    for _ in range(3):
        assert compiled(tb.ones((2, 3))).shape == (3, 2)
    assert not compiled.reasons
