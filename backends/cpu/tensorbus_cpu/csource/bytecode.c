// Makes a program of the numbers that tell it: a library of its own, compiled beside the one that runs it.

typedef struct { const int64_t *at; } tape;
static int64_t next(tape *t) { return *t->at++; }
static int64_t *numbers(tape *t, int64_t n) {
  int64_t *found = room(n, 8);
  for (int64_t k = 0; k < n; ++k) found[k] = next(t);
  return found;
}
static object *reference(tape *t) {
  object *found = (object *)next(t);
  if (found) Py_IncRef(found);
  return found;
}
static view view_of(tape *t) {
  view v = {.slot = next(t), .offset = next(t), .rank = 0};
  v.rank = next(t);
  v.lengths = (intptr_t *)numbers(t, v.rank), v.strides = (intptr_t *)numbers(t, v.rank);
  v.dtype = reference(t);
  return v;
}
static void drop_view(view *v) {
  free(v->lengths), free(v->strides);
  if (v->dtype) Py_DecRef(v->dtype);
}

static void drop_program(object *capsule) {
  program *p = PyCapsule_GetPointer(capsule, PROGRAM);
  for (int64_t k = 0; k < p->inputs; ++k) free(p->input[k].strides);
  for (int64_t k = 0; k < p->mades; ++k) drop_view(&p->made[k].shape);
  for (int64_t k = 0; k < p->outputs; ++k) drop_view(&p->output[k]);
  for (int64_t k = 0; k < p->steps; ++k) {
    step *s = &p->step[k];
    free(s->dropped);
    if (s->kind == KERNEL) free(s->kernel.slots), free(s->kernel.params), free(s->kernel.late), free(s->kernel.buffers), free(s->kernel.past);
    if (s->kind == PRODUCT) free(s->product.lengths), free(s->product.a_strides), free(s->product.b_strides);
    if (s->kind == PYTHON) {
      for (int64_t j = 0; j < s->python.count; ++j) drop_view(&s->python.operands[j]);
      free(s->python.operands), free(s->python.slots), Py_DecRef(s->python.call);
    }
  }
  Py_DecRef(p->fail);
  free(p->offsets), free(p->hosts), free(p->input), free(p->made), free(p->output), free(p->output_of), free(p->step);
  free(p->memory), free(p->holder), free(p->scalar), free(p->arena), free(p->times), free(p);
}

static void read_step(tape *t, step *s) {
  s->kind = next(t), s->error = next(t), s->group = next(t);
  s->drops = next(t), s->dropped = numbers(t, s->drops);
  if (s->kind == KERNEL) {
    kernel *k = &s->kernel;
    k->run = (tb_kernel)next(t);
    k->count = next(t), k->slots = numbers(t, k->count);
    const int64_t params = next(t);
    k->params = (slot *)numbers(t, params);
    k->lates = next(t), k->late = (late *)numbers(t, 2 * k->lates);
    k->buffers = room(k->count, sizeof(void *));
    k->boxes = 1;
    for (int a = 0; a < 3; ++a) k->grid[a] = next(t);
    for (int a = 0; a < 3; ++a) k->piece[a] = next(t), k->boxes *= (k->grid[a] + k->piece[a] - 1) / k->piece[a];
    k->stride = next(t), k->pasts = next(t), k->past = (past *)numbers(t, 2 * k->pasts);
    s->boxes = k->boxes;
  } else if (s->kind == PRODUCT) {
    product *q = &s->product;
    q->wide = next(t), q->a = next(t), q->b = next(t), q->c = next(t), q->m = next(t), q->n = next(t), q->k = next(t);
    q->a_row = next(t), q->a_column = next(t), q->b_row = next(t), q->b_column = next(t);
    q->a_offset = next(t), q->b_offset = next(t), q->tall = next(t), q->broad = next(t);
    q->after = next(t), q->rank = next(t), q->lengths = numbers(t, q->rank);
    q->a_strides = numbers(t, q->rank), q->b_strides = numbers(t, q->rank);
    q->count = 1;
    for (int64_t a = 0; a < q->rank; ++a) q->count *= q->lengths[a];
    q->rows = (q->m + q->tall - 1) / q->tall, q->columns = (q->n + q->broad - 1) / q->broad;
    s->boxes = q->count * q->rows * q->columns;
  } else if (s->kind == ROWS_ADDED) {
    memcpy(&s->rows, t->at, 11 * sizeof(int64_t)), t->at += 11;
    s->boxes = (s->rows.width + 15) / 16;
  } else {
    python *q = &s->python;
    q->call = reference(t);
    q->count = next(t), q->operands = room(q->count, sizeof(view));
    for (int64_t k = 0; k < q->count; ++k) q->operands[k] = view_of(t);
    q->results = next(t), q->slots = numbers(t, q->results);
  }
}

// Return a capsule with the program that bytecode tells.
object *tb_program(const int64_t *words) {
  tape at = {words}, *t = &at;
  program *p = room(1, sizeof(program));
  p->inputs = next(t), p->slots = next(t), p->mades = next(t), p->outputs = next(t), p->steps = next(t);
  p->arena_size = next(t), p->heavy = next(t), p->blas = next(t), p->fail = reference(t);
  p->input = room(p->inputs, sizeof(input));
  for (int64_t k = 0; k < p->inputs; ++k) {
    input *i = &p->input[k];
    i->kind = next(t), i->bits = next(t), i->rank = next(t);
    if (i->rank >= 0) i->strides = (intptr_t *)numbers(t, i->rank);
  }
  p->offsets = numbers(t, p->slots), p->hosts = numbers(t, p->slots);
  p->made = room(p->mades, sizeof(made));
  for (int64_t k = 0; k < p->mades; ++k) p->made[k].replaces = next(t), p->made[k].shape = view_of(t);
  p->output = room(p->outputs, sizeof(view)), p->output_of = room(p->outputs, 8);
  for (int64_t k = 0; k < p->outputs; ++k) p->output_of[k] = next(t), p->output[k] = view_of(t);
  p->step = room(p->steps, sizeof(step));
  for (int64_t k = 0; k < p->steps; ++k) read_step(t, &p->step[k]), p->checked |= p->step[k].kind == ROWS_ADDED;
  p->memory = room(p->slots, sizeof(void *)), p->holder = room(p->slots, sizeof(object *));
  p->scalar = room(p->inputs, sizeof(slot));
  if (p->arena_size && p->arena_size <= 1 << 16) p->arena = aligned_alloc(64, (size_t)(p->arena_size + 63) / 64 * 64);
  return PyCapsule_New(p, PROGRAM, drop_program);
}
