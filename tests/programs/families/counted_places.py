"""Counters that say which rows, batches and layers are next, and counters beside printing."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn
functional = nn.functional


def rows(n, width=2):
    return tb.sin(tb.reshape(tb.arange(float(n * width)), (n, width)))


@program
def batches_of_an_epoch():
    data, labels, state = rows(12, 3), tb.arange(12) % 2, {"at": 0}
    model = nn.Linear(3, 2)
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)

    def fn():
        at = state["at"]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(data[at : at + 4]), labels[at : at + 4])
        loss.backward()
        optimizer.step()
        state["at"] = (at + 4) % 12
        return loss.detach()

    return fn, [()] * 5, model, state


@program
def ring_of_recent_rows():
    ring, state = tb.zeros((3, 2)), {"n": 0}

    def fn(x):
        ring[state["n"] % 3] = x
        state["n"] += 1
        return ring.sum(axis=0) / min(state["n"], 3)

    return fn, [(tb.arange(2.0) + k,) for k in range(4)], ring, state


@program
def windows_at_all_axes():
    data, state = tb.reshape(tb.arange(36.0), (2, 9, 2)), {"i": 0}

    def fn():
        i = state["i"]
        state["i"] += 1
        return (
            data[:, i : i + 2].sum(), data[..., i : i + 2, :], data[:, i, None, 1], data[1, i],
            data[:, i + 1 : i + 3, 0], data[1, i : i + 2],
        )  # fmt: skip

    return fn, [()] * 3, state


@program
def places_counted_down_below_zero():
    data, state = rows(5), {"i": 3}

    def fn(x):
        state["i"] -= 1
        return data[state["i"]] + data[state["i"], 0] + x

    return fn, [(tb.arange(2.0),)] * 3, state


@program(raises=("IndexingError",))
def counter_runs_off_the_end():
    data, state = rows(4), {"i": 0}

    def fn():
        result = data[state["i"]] * 2
        state["i"] += 1
        return result

    return fn, [()] * 4, state


@program
def slice_is_shorter_at_the_end():
    data, state = rows(7), {"i": 0}

    def fn():
        i = state["i"]
        state["i"] = i + 3 if i + 3 < 7 else 0
        return data[i : i + 3] * 2

    return fn, [()] * 6, state


@program
def slices_and_elements_are_assigned():
    buffer, state = tb.zeros((6, 2)), {"i": 0}

    def fn(x):
        i = state["i"]
        buffer[i : i + 2] = x
        buffer[i, 0] += 1.0
        buffer[:, 1] *= 2
        state["i"] = (i + 2) % 6
        return buffer.sum()

    return fn, [(rows(2) + k,) for k in range(4)], buffer, state


@program
def gradients_of_the_row_that_is_next():
    w, state = rows(4).requires_grad_(), {"i": 0}

    def fn(x):
        (w[state["i"] % 4] * x).sum().backward()
        state["i"] += 1
        grad, w.grad = w.grad, None
        return grad

    return fn, [(tb.arange(2.0) + k,) for k in range(4)], state


@program
def layers_and_rates_take_turns():
    layers, rates, state = nn.ModuleList(nn.Linear(2, 2) for _ in range(3)), (0.1, 0.2, 0.3), {"n": 0}

    def fn(x):
        result = layers[state["n"] % 3](x) * rates[(state["n"] + 1) % 3]
        state["n"] += 1
        return result

    return fn, [(rows(2) + k,) for k in range(4)], state


@program
def optimizers_take_turns():
    models = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [
        tb.optim.SGD(models[0].parameters(), lr=0.1),
        tb.optim.Adam(models[1].parameters(), lr=0.1),
    ]
    state = {"n": 0}

    def fn(x):
        optimizer, model = optimizers[state["n"] % 2], models[state["n"] % 2]
        state["n"] += 1
        optimizer.zero_grad()
        tb.square(model(x)).sum().backward()
        optimizer.step()

    return fn, [(rows(2) + k,) for k in range(4)], *models, state


@program
def step_is_printed_and_computed_with():
    model, state = nn.Linear(2, 1), {"step": 0}
    optimizer = tb.optim.Adam(model.parameters(), lr=0.1)

    def fn(x):
        state["step"] += 1
        optimizer.zero_grad()
        loss = tb.square(model(x)).sum()
        loss.backward()
        optimizer.step()
        print(f"step {state['step']}")
        return loss.detach() * state["step"] + 3 * state["step"] - 3

    return fn, [(rows(3) + k,) for k in range(4)], model, state


@program(data_dependent=True)
def scaled_by_what_was_read():
    def fn(x):
        largest = abs(x).max().item()
        return x / largest if largest > 0 else x

    return fn, [(rows(2) + k,) for k in range(5)]


@program
def integers_that_vary_beside_printing():
    state = {"n": 90}

    def fn(x):
        state["n"] += 1
        print(end="")
        return x + state["n"], x * 2, x - state["n"]

    return fn, [(tb.cast(tb.arange(3), "int8"),)] * 6, state
