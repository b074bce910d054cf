"""Lists, dicts and objects that a program changes: its own, its arguments, and those from outside."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def list_built_by_appending():
    def fn(x, n):
        out = []
        for k in range(n):
            out.append(x * k)
        out.extend([x, x + 1])
        out.insert(0, out.pop())
        return out

    return fn, [(tb.ones(2), 2), (tb.arange(2.0), 2), (tb.ones(2), 0)]


@program
def log_outside():
    log = []

    def fn(x):
        log.append(x.shape[0])
        return x * 2 + len(log)

    return fn, [(tb.ones(3),), (tb.arange(4.0),), (tb.ones(3),), (tb.ones(3) * 5,)], log


@program
def results_kept_outside():
    retained = []

    def fn(x):
        y = tb.exp(x) - 1
        retained.append(y)
        return y.sum()

    return fn, [(tb.zeros(2),), (tb.ones(2),), (tb.ones(2) * 0.5,)], retained


@program
def dict_counts_calls():
    calls = {"train": 0, "eval": 0}

    def fn(x, mode):
        calls[mode] += 1
        return x * calls[mode]

    x = tb.ones(2)
    return fn, [(x, "train"), (x, "train"), (x, "eval"), (x, "train"), (x, "eval")], calls


@program
def memo_of_frequencies():
    memo = {}

    def frequencies(n):
        if n not in memo:
            memo[n] = 1.0 / (10.0 ** (tb.arange(n, dtype="float32") / n))
        return memo[n]

    def fn(x):
        return tb.sin(x[:, None] * frequencies(x.shape[0])[None, :])

    return fn, [(tb.arange(2.0),), (tb.arange(3.0),), (tb.ones(2),), (tb.ones(3),)], memo


@program
def argument_list_is_filled():
    def fn(x, out):
        out.append(x + 1)
        out[0] = x * 2
        return len(out)

    return fn, [(tb.ones(2), [None]), (tb.arange(2.0), [None, "kept"]), (tb.ones(2), [tb.zeros(1)])]


@program
def argument_dict_is_updated():
    def fn(state, x):
        state["sum"] = state.get("sum", 0) + x
        state.setdefault("steps", []).append(len(state))
        state.pop("scratch", None)
        return state

    state = {"scratch": 1}
    return fn, [(state, tb.ones(2)), (state, tb.arange(2.0)), (state, tb.ones(2))], state


@program
def running_mean_in_an_object():
    class Mean:
        def __init__(self):
            self.value, self.count = None, 0

        def update(self, x):
            self.count += 1
            self.value = x if self.value is None else self.value + (x - self.value) / self.count
            return self.value

    mean = Mean()
    return mean.update, [(tb.arange(3.0) * k,) for k in range(4)], mean


@program
def stack_machine():
    def fn(x, code):
        stack = [x]
        for word in code.split():
            if word == "dup":
                stack.append(stack[-1])
            elif word in "+*-":
                b, a = stack.pop(), stack.pop()
                stack.append({"+": a + b, "*": a * b, "-": a - b}[word])
            else:
                stack.append(tb.full(x.shape, float(word)))
        (result,) = stack
        return result

    x = tb.arange(3.0)
    return fn, [(x, "dup *"), (x, "2 * 1 +"), (x + 1, "dup *"), (x, "dup dup * -")]


@program
def lists_that_share_elements():
    def fn(x):
        a = [x, x + 1]
        b = a
        b.append(x * 2)
        c = a[:]
        c[0] = x - 1
        return a, b, c, a is b

    return fn, [(tb.ones(2),), (tb.zeros(3),), (tb.ones(2) * 3,)]


@program
def tensors_in_a_list_change_in_place():
    buffers = [tb.zeros(2), tb.zeros(2)]

    def fn(x):
        for k, buffer in enumerate(buffers):
            buffer += x * (k + 1)
        buffers[0][0] = -1.0
        return buffers[0] + buffers[1]

    return fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2),)], buffers


@program
def history_of_a_fixed_length():
    history = []

    def fn(x, keep):
        history.append(x)
        del history[:-keep]
        return tb.stack(history).sum(axis=0)

    return fn, [(tb.ones(2) * k, 2) for k in range(4)] + [(tb.ones(2), 1)], history


@program
def deleted_and_swapped_keys():
    table = {"a": tb.ones(2), "b": tb.arange(2.0)}

    def fn(scale):
        table["a"], table["b"] = table["b"] * scale, table["a"]
        first = next(iter(table))
        removed = table.pop(first)
        table[first] = removed + 1
        return list(table)

    return fn, [(2.0,), (3.0,), (2.0,)], table


@program
def argument_tensor_changes_in_place():
    def fn(x, y):
        x += y
        x[0] = 10.0
        return x.sum()

    x = tb.arange(3.0)
    return fn, [(x, tb.ones(3)), (x, tb.ones(3)), (tb.zeros(2), tb.ones(2))], x
