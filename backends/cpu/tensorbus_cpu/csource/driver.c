// Runs whole programs: one call from Python, which takes the values and returns the results.

// ---- Steps.

static void box_of_kernel(kernel *j, int64_t k) {
  int64_t range[6];
  for (int a = 0; a < 3; ++a) {
    const int64_t count = (j->grid[a] + j->piece[a] - 1) / j->piece[a], at = k % count;
    k /= count;
    range[2 * a] = at * j->piece[a];
    range[2 * a + 1] = range[2 * a] + j->piece[a] < j->grid[a] ? range[2 * a] + j->piece[a] : j->grid[a];
  }
  if (j->goes_past) run_past(j, range);
  else j->run(j->buffers, j->params, range);
}

static void kernel_box(void *with, int64_t k) { box_of_kernel(with, k); }

static void group_box(void *with, int64_t k) {  // `group` counts down, so that the last one ends the search
  step *s = with;
  while (k >= s->boxes) k -= s->boxes, ++s;
  box_of_kernel(&s->kernel, k);
}

static void rows_box(void *with, int64_t k) {  // 16 columns, in the order of the indices for any number of threads
  const rows *r = with;
  const int64_t first = 16 * k, last = first + 16 < r->width ? first + 16 : r->width;
  for (int64_t n = 0; n < r->count; ++n) {
    float *to = r->to + r->places[n] * r->width;
    const float *added = r->added + n * r->width;
    for (int64_t j = first; j < last; ++j) to[j] += added[j];
  }
}

enum { COPIED = 1 << 18 };
static void copy_box(void *with, int64_t k) {
  const rows *r = with;
  const int64_t size = r->limit * r->width, first = k * COPIED, some = size - first < COPIED ? size - first : COPIED;
  memcpy(r->to + first, r->from + first, (size_t)some * sizeof(float));
}

static void find_rows(program *p, rows *r) {
  r->from = (const float *)((char *)p->memory[r->x] + r->x_offset), r->to = p->memory[r->out];
  r->added = (const float *)((char *)p->memory[r->value] + r->value_offset);
  r->places = (const int64_t *)((char *)p->memory[r->index] + r->index_offset);
}

static int has_rows(program *p, rows *r) {  // indices are inputs: they are looked at before the first step
  find_rows(p, r);
  for (int64_t n = 0; n < r->count; ++n)
    if (r->places[n] < 0 || r->places[n] >= r->limit) {
      p->error[0] = r->code, p->error[1] = r->places[n], p->error[2] = r->limit;
      return 0;
    }
  return 1;
}

static void add_rows(program *p, rows *r, int64_t boxes) {
  find_rows(p, r);
  if (r->from != r->to) share(copy_box, r, (r->limit * r->width + COPIED - 1) / COPIED);
  share(rows_box, r, boxes);
}

static void ready(program *p, kernel *k) {
  for (int64_t j = 0; j < k->count; ++j) k->buffers[j] = k->slots[j] < 0 ? (void *)p->error : p->memory[k->slots[j]];
  for (int64_t j = 0; j < k->lates; ++j) k->params[k->late[j].param] = p->scalar[k->late[j].input];
  look_past(k);
}

static array *array_at(program *p, const view *v) {
  char *data = (char *)p->memory[v->slot] + v->offset;
  Py_IncRef(v->dtype);
  return (array *)new_array(array_type, v->dtype, (int)v->rank, v->lengths, v->strides, data, ALIGNED | WRITABLE, NULL);
}

// Call an eager kernel. Its results, packed and with memory of their own, hold their slots from now on.
static int call_python(program *p, python *q) {
  object *given = PyTuple_New(q->count);
  if (!given) return 0;
  for (int64_t k = 0; k < q->count; ++k) {
    object *x;
    if (q->operands[k].slot < 0) {  // a number of this run
      x = p->holder[-1 - q->operands[k].slot];
      Py_IncRef(x);
    } else {
      x = (object *)array_at(p, &q->operands[k]);
    }
    if (!x) {
      Py_DecRef(given);
      return 0;
    }
    PyTuple_SetItem(given, k, x);
  }
  object *results = PyObject_CallObject(q->call, given);
  Py_DecRef(given);
  if (!results) return 0;
  for (int64_t k = 0; k < q->results; ++k) {
    object *one = PyTuple_GetItem(results, k);
    Py_IncRef(one);
    if (p->holder[q->slots[k]]) Py_DecRef(p->holder[q->slots[k]]);
    p->holder[q->slots[k]] = one;
    p->memory[q->slots[k]] = ((array *)one)->data;
  }
  Py_DecRef(results);
  return 1;
}

static int failed(program *p, int64_t step) {  // 0 for memory; else what a kernel reported
  PyErr_Clear();
  object *given = PyTuple_New(4);
  PyTuple_SetItem(given, 0, PyLong_FromLongLong(step));
  for (int k = 0; k < 3; ++k) PyTuple_SetItem(given, k + 1, PyLong_FromLongLong(p->error[k]));
  object *out = PyObject_CallObject(p->fail, given);
  Py_DecRef(given);
  if (out) Py_DecRef(out);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a program failed without saying why");
  return 0;
}

static int64_t since(struct timespec *start) {  // nanoseconds; it begins again from here
  const struct timespec before = *start;
  clock_gettime(CLOCK_MONOTONIC, start);
  return (int64_t)(start->tv_sec - before.tv_sec) * 1000000000 + start->tv_nsec - before.tv_nsec;
}

static int run_steps(program *p) {
  void *thread = NULL;
  int good = 1;
  struct timespec start;
  if (p->times) memset(p->times, 0, (size_t)p->steps * 8), since(&start);
  if (p->blas) share_blas(1);
  if (p->heavy) thread = PyEval_SaveThread(), enter();
  for (step *s = p->step, *end = s + p->steps; p->checked && s < end; ++s)
    if (s->kind == ROWS_ADDED && !has_rows(p, &s->rows)) good = -1;
  for (step *s = p->step, *end = s + p->steps; good > 0 && s < end; s += s->group) {
    if (s->kind == KERNEL && s->group == 1) {
      ready(p, &s->kernel);
      if (s->boxes == 1) box_of_kernel(&s->kernel, 0);
      else share(kernel_box, &s->kernel, s->boxes);
    } else if (s->kind == KERNEL) {
      int64_t total = 0;
      for (int64_t k = 0; k < s->group; ++k) ready(p, &s[k].kernel), total += s[k].boxes;
      share(group_box, s, total);
    } else if (s->kind == PRODUCT) {
      product *q = &s->product;
      const int64_t size = q->wide ? 8 : 4;
      q->pa = (char *)p->memory[q->a] + q->a_offset * size, q->pb = (char *)p->memory[q->b] + q->b_offset * size;
      q->pc = p->memory[q->c];
      if (q->after) q->next = &s[1].kernel, ready(p, q->next);
      if (s->boxes == 1) product_box(q, 0);
      else share(product_box, q, s->boxes);
    } else if (s->kind == ROWS_ADDED) {
      add_rows(p, &s->rows, s->boxes);
    } else {
      if (thread) leave(), PyEval_RestoreThread(thread);
      if (p->blas) share_blas(0);
      good = call_python(p, &s->python);
      if (p->blas) share_blas(1);
      if (p->heavy) thread = PyEval_SaveThread(), enter();
    }
    if (s->error && p->error[0]) good = -1;
    if (p->times) p->times[s - p->step] += since(&start);
    for (int64_t k = 0; k < s->drops; ++k) {  // only results of Python's kernels are let go one by one
      object **held = &p->holder[s->dropped[k]];
      if (!*held) continue;
      if (thread) PyEval_RestoreThread(thread);
      Py_DecRef(*held), *held = NULL;
      if (thread) thread = PyEval_SaveThread();
    }
  }
  if (thread) leave(), PyEval_RestoreThread(thread);
  if (p->blas) share_blas(0);
  if (good < 0) failed(p, 1), good = 0;
  return good;
}

// ---- Values in, results out.

static object *item(object *values, intptr_t k) {
  return values->type == &PyList_Type ? PyList_GetItem(values, k) : PyTuple_GetItem(values, k);
}

static int fits(const program *p, object *values) {  // whether all arrays lie as this program wants them
  for (int64_t k = 0; k < p->inputs; ++k) {
    const input *i = &p->input[k];
    if (i->kind != ARRAY) continue;
    const array *a = (const array *)item(values, k);
    if (a->head.type != array_type || !(a->flags & ALIGNED)) return 0;
    if (i->rank < 0) {
      if (!(a->flags & PACKED)) return 0;
    } else if (a->rank != i->rank || memcmp(a->strides, i->strides, (size_t)i->rank * sizeof(intptr_t))) {
      return 0;
    }
  }
  return 1;
}

static int take_inputs(program *p, object *values) {
  for (int64_t k = 0; k < p->inputs; ++k) {
    const input *i = &p->input[k];
    object *x = item(values, k);
    if (i->kind == ARRAY) {
      p->memory[k] = ((array *)x)->data;
      continue;
    }
    slot *s = &p->scalar[k];
    if (i->kind == FLOAT) {
      s->f = PyFloat_AsDouble(x);
    } else if (i->kind == BOOL) {
      s->i = PyObject_IsTrue(x);
    } else {
      s->u = PyLong_AsUnsignedLongLongMask(x);
      if (i->bits > 0) s->i = (int64_t)(s->u << (64 - i->bits)) >> (64 - i->bits);
      else if (i->bits < 0) s->u = s->u << (64 + i->bits) >> (64 + i->bits);
    }
    if (PyErr_Occurred()) return 0;
    Py_IncRef(x), p->holder[k] = x;
  }
  return 1;
}

static uint32_t references(const object *x) {  // the count's low half, which is the whole in newer Pythons
  uint32_t found;
  memcpy(&found, &x->references, 4);
  return found;
}

enum { HELD_BY_CALLER = 2, FREE = WRITABLE | PACKED | ALIGNED };

static int is_free(const array *a) {  // whether its memory is its own, or that of an array which nobody else sees
  const array *base = (const array *)a->base;
  if ((a->flags & FREE) != FREE) return 0;
  if (!base) return a->flags & OWNED;
  return base->head.type == array_type && references(&base->head) == 1 && !base->base && base->flags & OWNED && base->flags & WRITABLE;
}

static object *taken(const made *m, object *values) {
  array *old = (array *)item(values, m->replaces);
  if (references(&old->head) != HELD_BY_CALLER || !is_free(old)) return NULL;
  Py_IncRef(&old->head);
  return &old->head;
}

// Make the results' arrays, or take inputs in whose place they come and that nobody else holds.
static int make_outputs(program *p, object *values) {
  int pooled = p->heavy && PyContext_Enter(pool_context) == 0, good = 1;
  if (p->heavy && !pooled) PyErr_Clear();
  for (int64_t k = 0; good && k < p->mades; ++k) {
    made *m = &p->made[k];
    object *out = m->replaces >= 0 ? taken(m, values) : NULL;
    if (!out) {
      Py_IncRef(m->shape.dtype);
      out = new_array(array_type, m->shape.dtype, (int)m->shape.rank, m->shape.lengths, NULL, NULL, 0, NULL);
    }
    if ((p->holder[m->shape.slot] = out)) p->memory[m->shape.slot] = ((array *)out)->data;
    else PyErr_Clear(), good = 0;
  }
  if (pooled) PyContext_Exit(pool_context);
  return good;
}

static object *result(program *p, int64_t k, object *values) {
  const view *v = &p->output[k];
  object *whole = v->slot < p->inputs ? item(values, v->slot) : p->holder[v->slot];
  if (p->output_of[k] >= 0) {
    Py_IncRef(whole);
    return whole;
  }
  array *seen = array_at(p, v);
  if (!seen) return NULL;
  Py_IncRef(whole);
  if (set_base(seen, whole)) {
    Py_DecRef(&seen->head);
    return NULL;
  }
  return &seen->head;
}

// A forked child has one thread. There no other is within a program, or within BLAS.
static int64_t processes = 1;  // from the first to this one; a program is `running` in one of them

static void in_child(void) {
  ++processes;
  blas_lost |= blas_users > 0, blas_users = 0;
}

__attribute__((constructor)) static void set_up(void) { pthread_atfork(NULL, NULL, in_child); }

static void take_over(program *p) {  // what a thread of the parent was about to do is left as it was
  memset(p->error, 0, sizeof p->error);
  memset(p->holder, 0, (size_t)p->slots * sizeof *p->holder);
}

static int wait_for(program *p) {  // a program has one arena: other threads' runs come one after another
  while (p->running == processes) {
    if (PyErr_CheckSignals()) return 0;
    void *thread = PyEval_SaveThread();
    nanosleep(&(struct timespec){0, 50000}, NULL);
    PyEval_RestoreThread(thread);
  }
  return 1;
}

static object *run(program *p, object *values) {
  if (p->running == processes && !wait_for(p)) return NULL;
  if (p->running) take_over(p);
  p->running = processes;
  object *results = NULL;
  void *arena = p->arena;
  int good = take_inputs(p, values);
  if (good && !(good = make_outputs(p, values))) failed(p, 0);
  if (good && p->arena_size && !arena && !(arena = allocate(NULL, (size_t)p->arena_size))) good = failed(p, 0);
  if (good) {
    for (int64_t k = p->inputs; k < p->slots; ++k)
      if (p->offsets[k] >= 0) p->memory[k] = (char *)(p->hosts[k] < 0 ? arena : p->memory[p->hosts[k]]) + p->offsets[k];
    good = run_steps(p);
  }
  if (good && (results = PyTuple_New(p->outputs)))
    for (int64_t k = 0; k < p->outputs; ++k) {
      object *one = result(p, k, values);
      if (!one) {
        Py_DecRef(results), results = NULL;
        break;
      }
      PyTuple_SetItem(results, k, one);
    }
  for (int64_t k = 0; k < p->slots; ++k)
    if (p->holder[k]) Py_DecRef(p->holder[k]), p->holder[k] = NULL;
  if (arena && !p->arena) release(NULL, arena, (size_t)p->arena_size);
  memset(p->error, 0, sizeof p->error);
  p->running = 0;
  return results;
}

// ---- What Python calls: it finds the program for the layouts at hand, and asks for one where there is none.

enum { MAX_PROGRAMS = 8 };
typedef struct {
  object *other, *capsules[MAX_PROGRAMS];
  program *programs[MAX_PROGRAMS];
  int64_t count, inputs;
} executable;

static void drop_executable(object *capsule) {
  executable *e = PyCapsule_GetPointer(capsule, EXECUTABLE);
  for (int64_t k = 0; k < e->count; ++k) Py_DecRef(e->capsules[k]);
  Py_DecRef(e->other);
  free(e);
}

static int add(executable *e, object *capsule) {
  program *p = PyCapsule_GetPointer(capsule, PROGRAM);
  if (!p) return 0;
  if (e->count == MAX_PROGRAMS) Py_DecRef(e->capsules[--e->count]);
  Py_IncRef(capsule);
  e->capsules[e->count] = capsule, e->programs[e->count++] = p;
  return 1;
}

static object *run_held(object *capsule, object *values) {  // another thread may drop it from the list meanwhile
  Py_IncRef(capsule);
  object *results = run(PyCapsule_GetPointer(capsule, PROGRAM), values);
  Py_DecRef(capsule);
  return results;
}

static object *call(object *self, object *values) {
  executable *e = PyCapsule_GetPointer(self, EXECUTABLE);
  const intptr_t count = values->type == &PyList_Type ? PyList_Size(values)
                       : values->type == &PyTuple_Type ? PyTuple_Size(values) : -1;
  if (count != e->inputs) {
    PyErr_SetString(PyExc_TypeError, "a compiled program takes a list or tuple with one value for each input");
    return NULL;
  }
  for (int64_t k = 0; k < e->count; ++k)
    if (fits(e->programs[k], values)) return run_held(e->capsules[k], values);
  object *given = PyTuple_New(1);
  Py_IncRef(values), PyTuple_SetItem(given, 0, values);
  object *found = PyObject_CallObject(e->other, given);  // a program, and the values to call it with
  Py_DecRef(given);
  if (!found) return NULL;
  object *capsule = PyTuple_GetItem(found, 0), *results = NULL;
  if (add(e, capsule)) results = run_held(capsule, PyTuple_GetItem(found, 1));
  Py_DecRef(found);
  return results;
}

static struct { const char *name; object *(*function)(object *, object *); int flags; const char *text; } method = {
    "run", call, METH_O, "Run the program."};

// Return the function that runs a program; `other` is asked for others where values lie otherwise.
object *tb_executable(object *capsule, object *other, int64_t inputs) {
  executable *e = room(1, sizeof(executable));
  e->other = other, e->inputs = inputs;
  Py_IncRef(other);
  if (capsule) add(e, capsule);
  object *self = PyCapsule_New(e, EXECUTABLE, drop_executable);
  object *made = PyCFunction_NewEx(&method, self, NULL);
  Py_DecRef(self);
  return made;
}

// Return where a program notes, from now on, the nanoseconds of each step of its last run.
int64_t *tb_times(object *capsule) {
  program *p = PyCapsule_GetPointer(capsule, PROGRAM);
  if (!p->times) p->times = room(p->steps, 8);
  return p->times;
}
