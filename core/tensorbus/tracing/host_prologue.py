"""Python numbers and effects that a captured program needs anew at each run: rates, counts of steps.

Optimizers, schedules and random generators change a little Python state at each step. Where they do so
through this module a captured step stays one program: the host prologue does those small things before it.
Outside a capture everything here does what plain Python does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from .active_modes import active_modes
from .active_tracer import active_tracer
from .mutation_counter import NUMBERS, CountedDict
from .sym_int import FUNCTIONS, ShapeEnv, SymInt, hints
from .sym_number import OPERATORS, SymNumber

T = TypeVar("T")

FEW_VALUES: Final = 4
"""How many values a number may take that Python needs itself: each is captured by itself."""
ARGUMENT: Final = 0
"""Stands for the id of an owner in the places of arguments."""


class HostPrologue:
    """The Python lines before a run of a captured program, in the order in which they happened.

    ``constants`` are the objects that the lines name. ``reads`` and ``owners`` say which state belongs to the
    prologue alone: it needs no guard. ``obstacle`` says why the prologue cannot run again, where it cannot;
    ``observed`` what Python read of that state. ``slots`` are locations whose numbers belong to the prologue
    too: a run may read and change them freely. Numbers that come from there are ``varying``. ``appended`` are
    lists, by id, to which a run appends, without a look into them. ``free``: all that the prologue reads is
    bound. ``stepped_optimizers`` are the states, by id, of optimizers that took a step, and of the parameters
    that did. ``shape_env`` has the symbolic lengths.
    """

    def __init__(self, dry: bool = False, note_obstacle: Callable[[], None] | None = None) -> None:
        self.dry = dry
        self._note_obstacle = note_obstacle
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.reads: dict[tuple[int, Any], Any] = {}
        self.owners: list[Any] = []
        self.writes: list[str] = []
        self._obstacle: str | None = None
        self.observed: str | None = None
        self.free = False
        self.slots: dict[tuple[int, Any], SymbolicSlot] = {}
        self.appended: dict[int, Any] = {}
        self.varying: set[str] = set()
        self.stepped_optimizers: set[int] = set()
        self._known: dict[tuple[Any, ...], SymNumber] = {}
        self._names: dict[int, str] = {}
        self._written: dict[tuple[int, Any], SymNumber] = {}
        self._called = False
        self._count = 0
        self._first = 0
        self._touched: dict[tuple[int, Any], int] = {}
        self._late: set[str] = set()
        self._few_valued: set[str] = set()
        self._over_sizes: dict[str, str] = {}
        self.shape_env: ShapeEnv | None = None

    @property
    def obstacle(self) -> str | None:
        """Why the prologue cannot run again; who sets it is at the line that it is about."""
        return self._obstacle

    @obstacle.setter
    def obstacle(self, reason: str | None) -> None:
        self._obstacle = reason
        if self._note_obstacle is not None:
            self._note_obstacle()

    def name(self, thing: Any) -> str:
        """Return the name under which the lines find ``thing``."""
        constant = self._names.get(id(thing))
        if constant is None:
            constant = self._names[id(thing)] = f"c{len(self.constants)}"
            self.constants[constant] = thing
        return constant

    def _text(self, x: Any) -> str:
        if type(x) is SymInt:
            return x.text
        if type(x) is SymNumber:
            return x.name
        return repr(x) if x == x and abs(x) != float("inf") else self.name(x)

    def _number(self, key: tuple[Any, ...], plain: Any, line: str, late: bool = False) -> SymNumber:
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = SymNumber(self, f"n{len(self._known)}", plain)
            if late:
                self._late.add(number.name)
            self._line(f"{number.name} = {line}", late)
        return number

    def _line(self, text: str, late: bool = False) -> None:
        """Add a line: before the first call, unless it is ``late``, about what a call may have changed."""
        if late or not self._called:
            self.lines.append(text)
        else:
            self.lines.insert(self._first, text)
            self._first += 1

    def number(self, text: str, plain: Any) -> SymNumber:
        """Return the number that an expression over lengths gives."""
        length = self._number(("length", text), plain, text)
        self._over_sizes[length.name] = text
        return length

    def rounded(self, how: str, x: SymNumber) -> Any:
        """Return an integer made of a number: a length where it is one of lengths alone."""
        return self.outcome(FUNCTIONS[how], x)

    def read(self, container: Any, key: Any) -> Any:
        """Return ``container[key]`` as it will be at each run: numbers, also within a tuple."""
        written = self._written.get((id(container), key))
        if written is not None:
            return written
        value, changes = container[key], self._touched.get((id(container), key), 0)
        late = changes > 0
        if (id(container), ("item", (type(key), repr(key)))) in self.slots:
            return value  # a number of the prologue, or one that the program put there
        if type(value) is tuple and value and all(type(v) in (int, float) for v in value):
            self.reads[id(container), key] = container
            parts = range(len(value))
            where = f"{self.name(container)}[{key!r}]"
            return tuple(
                self._number(("read", id(container), key, k, changes), value[k], f"{where}[{k}]", late)
                for k in parts
            )
        if type(value) not in (int, float):
            return value
        self.reads[id(container), key] = container
        line = f"{self.name(container)}[{key!r}]"
        return self._number(("read", id(container), key, changes), value, line, late)

    def apply(self, op: str, *operands: Any) -> SymNumber:
        """Return the number that an operator makes of others."""
        text, function = OPERATORS[op]
        plain = self.checked(function, *operands)
        parts = [self._text(x) for x in operands]
        late = not self._late.isdisjoint(parts)
        known = (op, *parts) in self._known
        number = self._number((op, *parts), plain, text.format(*parts), late)
        if all(
            part in self._over_sizes for x, part in zip(operands, parts, strict=True) if type(x) is SymNumber
        ):
            self._over_sizes[number.name] = text.format(*[self._over_sizes.get(part, part) for part in parts])
        if not self.varying.isdisjoint(parts):
            self.varying.add(number.name)
            self._count_values(op, number, operands)
            if op == "pow" and not known:  # of integers a float, of negative ones a complex number
                self._line(f"if type({number.name}) is not {type(plain).__name__}: return GUARD_MISS", late)
        return number

    def _count_values(self, op: str, number: SymNumber, operands: Iterable[Any]) -> None:
        """Note a number that takes few values, as a remainder does, however its operands move."""
        *_, last = operands
        small = op == "mod" and type(last) is int and 1 <= last <= FEW_VALUES and type(number.plain) is int
        if small or all(x.name in self._few_valued for x in operands if type(x) is SymNumber):
            self._few_valued.add(number.name)

    def outcome(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return the number that a function of ``math`` makes of numbers; without one of ours, its result.

        What rounds a number of lengths alone gives a length.
        """
        operands = tuple([x.number() if type(x) is SymInt else x for x in operands])
        if not any(type(x) is SymNumber for x in operands):
            return function(*operands)
        how = next((name for name, known in FUNCTIONS.items() if known is function), None)
        over = self._over_sizes.get(operands[0].name)
        if how is not None and self.shape_env is not None and over:
            return SymInt(self.shape_env, f"{how}({over})", function(operands[0].plain))
        parts = [self._text(x) for x in operands]
        plain = self.checked(function, *operands)
        text = f"{self.name(function)}({', '.join(parts)})"
        number = self._number((function, *parts), plain, text, not self._late.isdisjoint(parts))
        if not self.varying.isdisjoint(parts):
            self.varying.add(number.name)
        return number

    def checked(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return what a function makes of the numbers of this run; that it fails depends on all of them."""
        try:
            return function(*[x.plain if type(x) is SymNumber else x for x in operands])
        except Exception:
            for x in operands:
                if type(x) is SymNumber:
                    self.decide(x)
            raise

    def bounded(self, number: SymNumber, low: int, high: int) -> None:
        """Make it a condition that a varying number lies in a range: others are an error of the op."""
        if self.shape_env is not None and number.name in self._over_sizes:
            self.shape_env.add_guard(f"{low} <= {self._over_sizes[number.name]} <= {high}")
        elif number.name in self.varying:
            late = number.name in self._late
            if late:
                self.obstacle = self.obstacle or "computes with integers that a schedule changes"
            self._line(f"if not {low} <= {number.name} <= {high}: return GUARD_MISS", late)

    def bind(self, key: tuple[int, Any], slot: SymbolicSlot) -> None:
        """Bind the number at a location to the prologue, from now on: it is read at each run."""
        value = slot.get()
        self.slots[key] = slot
        self._fresh(slot, value)

    def open(self, key: tuple[int, Any], slot: SymbolicSlot) -> str:
        """Leave the integer at a place open, as a length is; return the name of its symbol."""
        assert self.shape_env is not None
        self.slots[key] = slot
        opened = self.shape_env.new_symbol(slot.get(), f"integer({slot.access})")
        slot.now = opened
        slot.put(opened)
        return opened.text

    def _fresh(self, slot: SymbolicSlot, value: Any) -> None:
        """Put numbers of the prologue in the place of plain ones."""
        plain = value if type(value) is tuple else (value,)
        self._count += 1
        numbers = []
        for k, each in enumerate(plain):
            at = f"{slot.access}[{k}]" if type(value) is tuple else slot.access
            number = self._number(("held", self._count, k), each, at, self._called)
            self.varying.add(number.name)
            if not self._called:
                self.lines.append(f"if type({number.name}) is not {type(each).__name__}: return GUARD_MISS")
            numbers.append(number)
        slot.now = tuple(numbers) if type(value) is tuple else numbers[0]
        slot.put(slot.now)

    def release(self) -> None:
        """Put plain numbers back, as they were, and keep in ``now`` what each place has come to hold.

        A place that is gone holds None, and gets nothing back.
        """
        for slot in self.slots.values():
            try:
                now = slot.get()
            except (LookupError, AttributeError, ValueError):
                slot.now, slot.changed = None, True
                continue
            slot.now, slot.changed = now, now is not slot.now
            slot.put(slot.plain)

    def decide(self, number: SymNumber) -> Any:
        """Return the value of ``number`` at the capture, which a later run must have again."""
        if self.shape_env is not None and number.name in self._over_sizes:
            self.shape_env.add_guard(f"({self._over_sizes[number.name]} == {number.plain!r})")
            return number.plain
        late = number.name in self._late
        if late:
            self.obstacle = self.obstacle or "Python decides by a number after it has called into a schedule"
        if (
            number.name in self.varying
            and type(number.plain) is not bool
            and number.name not in self._few_valued
        ):
            self.obstacle = self.obstacle or "needs the value of a number that is another at each call"
        self._line(f"if {number.name} != {self._text(number.plain)}: return GUARD_MISS", late)
        return number.plain

    def write(self, container: Any, key: Any, value: SymNumber) -> None:
        """Make ``container[key]`` the number, now and at each run."""
        slot = self.slots.get((id(container), ("item", (type(key), repr(key)))))
        silent = type(container) is CountedDict and type(container.get(key)) in NUMBERS
        if slot is not None:
            slot.now = value
            container[key] = value
        elif not self.dry:
            container[key] = value.plain
        self._written[id(container), key] = value
        self.reads[id(container), key] = container
        at = self.name(container)
        put = f"{self.name(dict.__setitem__)}({at}, {key!r}, {value.name})" if silent else None
        self.writes.append(put or f"{at}[{key!r}] = {value.name}")

    def call(
        self, owner: Any, function: Callable[..., T], touched: Iterable[tuple[Any, Any]] = (),
        sizes: tuple[Any, ...] = (), parts: Iterable[Any] = (),
    ) -> T:  # fmt: skip
        """Call ``function(*sizes)`` now and at each run; only it may depend on what it changes in ``owner``.

        ``touched``: containers and keys that it changes besides. ``sizes`` may be open lengths. ``parts`` are
        further owners.
        """
        owners = [owner, *parts]
        if not self._called:
            self._called, self._first = True, len(self.lines)
        for at in [(id(container), key) for container, key in touched]:
            self._touched[at] = self._touched.get(at, 0) + 1
        self._written = {at: n for at, n in self._written.items() if at not in self._touched}
        self.owners += owners
        self.reads.update({(id(container), key): container for container, key in touched})
        self.lines.extend(self.writes)
        self.writes = []
        arguments = ", ".join(n.text if type(n) is SymInt else repr(n) for n in sizes)
        touched = {(id(container), ("item", (type(key), repr(key)))) for container, key in touched}
        own = {id(each) for each in owners}
        changed_slots = [h for at, h in self.slots.items() if at in touched or at[0] in own]
        self.lines += [line for h in changed_slots for line in h.write_back(self._text)]
        self.lines.append(f"{self.name(function)}({arguments})")
        if changed_slots and not sizes:
            return self._moved(changed_slots, function)
        return function(*hints(sizes)) if not self.dry else None  # type: ignore[return-value]

    def _moved(self, changed_slots: list[SymbolicSlot], function: Callable[..., T]) -> T:
        """Call what changes bound slots, on plain numbers; bind the new ones."""
        out = function()
        for slot in changed_slots:
            self._fresh(slot, slot.get())
        return out


class SymbolicSlot:
    """A location whose number is symbolic: ``access`` is its code, ``plain`` what it was to begin with.

    ``now`` is the number that the prologue knows to be there, ``assigned(text)`` the code that changes it.
    ``lasts``: the object that holds it is known by its id from call to call.
    """

    __slots__ = ("access", "assigned", "changed", "get", "lasts", "now", "plain", "put")

    def __init__(
        self, access: str, get: Callable[[], Any], put: Callable[[Any], None], assigned: Callable[[str], str],
        lasts: bool = True,
    ) -> None:  # fmt: skip
        self.access, self.get, self.put, self.assigned, self.lasts = access, get, put, assigned, lasts
        self.plain = self.now = get()
        self.changed = False

    def write_back(self, text: Callable[[Any], str]) -> list[str]:
        """Put the plain number in the place; return the code that does so where it has changed."""
        value = self.get()
        changed = value is not self.now
        parts = value if type(value) is tuple else (value,)
        plain = [x.plain if type(x) is SymNumber else hints(x) for x in parts]
        self.put(tuple(plain) if type(value) is tuple else plain[0])
        if not changed:
            return []
        texts = [text(x) for x in parts]
        return [self.assigned(f"({', '.join(texts)},)" if type(value) is tuple else texts[0])]


def flat_numbers(obj: Any) -> tuple[list[Any], Any]:
    """Return the items of nested lists in order, and the lists with plain numbers in the place of ours.

    Lengths become numbers. There are no items where no number is ours, or something is no number.
    """
    flat: list[Any] = []

    def plain(x: Any) -> Any:
        if type(x) in (list, tuple):
            return [plain(each) for each in x]
        if type(x) is SymInt:
            x = x.number()
        flat.append(x)
        return x.plain if type(x) is SymNumber else x

    known = plain(obj)
    kinds = {*map(type, flat)}
    return (flat if SymNumber in kinds and kinds <= {SymNumber, int, float} else []), known


def active_prologue() -> HostPrologue | None:
    """Return the host prologue of the capture in this thread, if any."""
    active = active_tracer() if active_modes else None
    return active.prologue if active is not None else None


def symbolic_numbers(container: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a copy of ``container`` whose numbers under ``keys`` are those of each run."""
    numbers = dict(container)
    active = active_prologue()
    if active is not None:
        for key in keys:
            if key in numbers:
                numbers[key] = active.read(container, key)
    return numbers


def store_number(container: dict[str, Any], key: str, value: Any) -> None:
    """Make ``container[key]`` a number, at each run."""
    if type(value) is SymNumber:
        value.prologue.write(container, key, value)
    else:
        container[key] = value


def call_each_run(
    owner: Any, function: Callable[[], T], touched: Iterable[tuple[Any, Any]] = (), parts: Iterable[Any] = ()
) -> T:
    """Call ``function``, at each run: it changes numbers of ``owner``, its ``parts``, and those ``touched``.

    It changes no tensor.
    """
    active = active_tracer()
    if active is None:
        return function()
    result: T = active.untraced(lambda: active.prologue.call(owner, function, touched, parts=parts))
    return result


def value_each_run(owner: Any, function: Callable[..., Any], *sizes: int) -> Any:
    """Return the tensor ``function(*sizes)``, made from Python state of ``owner``: at each run another."""
    active = active_tracer()
    return function(*sizes) if active is None else active.made_each_run(owner, function, sizes)


def note_optimizer_step(state: dict[Any, Any]) -> None:
    """Note that an optimizer takes a step, and so looks at its ``state``, or at that of a parameter."""
    active = active_prologue()
    if active is not None:
        active.stepped_optimizers.add(id(state))


def note_read(what: str) -> None:
    """Note that Python reads state that belongs to a prologue: the program cannot run without Python then."""
    active = active_prologue()
    if active is not None:
        active.obstacle = active.obstacle or f"Python reads {what}"


def note_write(what: str) -> None:
    """Note that Python leaves something behind that a program does not: it cannot run without Python then."""
    active = active_prologue()
    if active is not None:
        active.obstacle = active.obstacle or f"Python writes {what}"


def note_observed(what: str) -> None:
    """Note that Python observes numbers that a prologue can bind: one that binds none has them too early."""
    active = active_prologue()
    if active is not None:
        active.observed = active.observed or f"reads {what}, which changes at each step"
