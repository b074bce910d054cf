// Runs the launches of an eager call: one call from Python, which takes arrays and returns results.
//
// A routine is told by numbers, which launches.py writes: how many arrays it takes, the results and the scratch memory
// that it makes, and its steps, each a kernel over a grid; a group of steps is one job of the threads. Buffers count the
// arrays first, then results, then scratch.

enum { FAST_CALL = 128, MOST_AXES = 64, LARGE = 1 << 18 };

typedef struct {
  tb_kernel run;
  const void *params;
  int64_t group, boxes, grid[3], piece[3], count;  // group: of how many steps this one is the first
  const int64_t *buffers;
} launch;
typedef struct { int64_t bytes, rank; object *dtype; intptr_t lengths[MOST_AXES]; } result;
typedef struct {
  int64_t inputs, results, scratches, steps, repacks;  // repacks: `other` packs an array, and does not stand for all
  int64_t *words;  // the numbers, among which parameters and lists of buffers stay
  result *result;
  int64_t *scratch;  // bytes of each
  launch *step;
  object *other;
} routine;

static const char ROUTINE[] = "tensorbus.routine";
extern object *PyErr_NoMemory(void);

static void drop_routine(object *capsule) {
  routine *r = PyCapsule_GetPointer(capsule, ROUTINE);
  for (int64_t k = 0; k < r->results; ++k) Py_DecRef(r->result[k].dtype);
  Py_DecRef(r->other);
  free(r->words), free(r->result), free(r->step), free(r);
}

static object *leave_to(object *other, object *const *values, intptr_t count) {
  object *given = PyTuple_New(count);
  if (!given) return NULL;
  for (intptr_t k = 0; k < count; ++k) Py_IncRef(values[k]), PyTuple_SetItem(given, k, values[k]);
  object *out = PyObject_CallObject(other, given);
  Py_DecRef(given);
  return out;
}

static object *made(const result *r) {
  const int pooled = r->bytes >= LARGE && PyContext_Enter(pool_context) == 0;
  if (r->bytes >= LARGE && !pooled) PyErr_Clear();
  Py_IncRef(r->dtype);
  object *out = new_array(array_type, r->dtype, (int)r->rank, r->lengths, NULL, NULL, 0, NULL);
  if (pooled) PyContext_Exit(pool_context);
  return out;
}

typedef struct { const launch *first; void *const *memory; } job;

static void box_of_job(void *with, int64_t k) {
  const job *j = with;
  const launch *s = j->first;
  while (k >= s->boxes) k -= s->boxes, ++s;
  void *buffers[s->count + 1];
  int64_t range[6];
  for (int64_t n = 0; n < s->count; ++n) buffers[n] = j->memory[s->buffers[n]];
  for (int a = 0; a < 3; ++a) {
    const int64_t count = (s->grid[a] + s->piece[a] - 1) / s->piece[a], at = k % count;
    k /= count;
    range[2 * a] = at * s->piece[a];
    range[2 * a + 1] = range[2 * a] + s->piece[a] < s->grid[a] ? range[2 * a] + s->piece[a] : s->grid[a];
  }
  s->run(buffers, s->params, range);
}

static void run_steps(const routine *r, void *const *memory) {
  for (const launch *s = r->step, *end = s + r->steps; s < end; s += s->group) {
    job all = {s, memory};
    int64_t boxes = 0;
    for (int64_t k = 0; k < s->group; ++k) boxes += s[k].boxes;
    share(box_of_job, &all, boxes);
  }
}

static object *results_of(const routine *r, object **out) {
  if (r->results == 1) return out[0];
  object *all = PyTuple_New(r->results);
  for (int64_t k = 0; k < r->results; ++k)
    if (all) PyTuple_SetItem(all, k, out[k]);
    else Py_DecRef(out[k]);
  return all;
}

static int is_packed(const object *value) {
  return value->type == array_type && !(~((const array *)value)->flags & (PACKED | ALIGNED));
}

static object *run(const routine *r, object *const *values) {
  void *memory[r->inputs + r->results + r->scratches + 1], **next = memory;
  object *out[r->results + 1];
  for (int64_t k = 0; k < r->inputs; ++k) *next++ = ((array *)values[k])->data;
  int64_t results = 0, scratches = 0;
  for (; results < r->results && (out[results] = made(&r->result[results])); ++results)
    *next++ = ((array *)out[results])->data;
  if (results == r->results)
    for (; scratches < r->scratches && (*next = allocate(NULL, (size_t)r->scratch[scratches])); ++scratches) ++next;
  const int good = results == r->results && scratches == r->scratches;
  if (good) {
    void *thread = PyEval_SaveThread();
    run_steps(r, memory);
    PyEval_RestoreThread(thread);
  }
  while (scratches-- > 0) release(NULL, *--next, 0);
  if (good) return results_of(r, out);
  while (results-- > 0) Py_DecRef(out[results]);
  return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static object *run_packed(const routine *r, object *const *values) {
  object *given[r->inputs + 1], *out = NULL;
  int64_t k = 0;
  for (; k < r->inputs; ++k) {
    given[k] = values[k];
    if (is_packed(values[k])) Py_IncRef(given[k]);
    else if (!(given[k] = leave_to(r->other, values + k, 1))) break;
  }
  int good = k == r->inputs;
  for (int64_t j = 0; j < k; ++j) good = good && is_packed(given[j]);
  if (good) out = run(r, given);
  else if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an operand is no array, or was not packed");
  while (k-- > 0) Py_DecRef(given[k]);
  return out;
}

static object *call(object *self, object *const *values, intptr_t count) {
  const routine *r = PyCapsule_GetPointer(self, ROUTINE);
  int64_t ready = 0;
  if (count != r->inputs) return leave_to(r->other, values, count);
  while (ready < count && is_packed(values[ready])) ++ready;
  return ready == count ? run(r, values) : r->repacks ? run_packed(r, values) : leave_to(r->other, values, count);
}

static struct {
  const char *name;
  object *(*function)(object *, object *const *, intptr_t);
  int flags;
  const char *text;
} method = {"launch", call, FAST_CALL, "Run the launches."};

// Return the function that runs a routine; `other` is called where arrays are not packed: with all of them, or with each.
object *tb_routine(const int64_t *told, int64_t length, object *other, int64_t repacks) {
  routine *r = calloc(1, sizeof *r);
  int64_t *at = r->words = malloc((size_t)length * 8);
  memcpy(at, told, (size_t)length * 8);
  r->inputs = *at++, r->results = *at++, r->scratches = *at++, r->steps = *at++;
  r->result = calloc((size_t)r->results + 1, sizeof *r->result), r->step = calloc((size_t)r->steps + 1, sizeof *r->step);
  r->scratch = at, at += r->scratches;
  for (int64_t k = 0; k < r->results; ++k) {
    result *one = &r->result[k];
    one->dtype = (object *)*at++, one->bytes = *at++, one->rank = *at++;
    Py_IncRef(one->dtype);
    for (int64_t a = 0; a < one->rank; ++a) one->lengths[a] = *at++;
  }
  for (int64_t k = 0; k < r->steps; ++k) {
    launch *s = &r->step[k];
    s->run = (tb_kernel)*at++, s->group = *at++, s->boxes = 1;
    for (int a = 0; a < 3; ++a) {
      s->grid[a] = *at++, s->piece[a] = *at++;
      s->boxes *= (s->grid[a] + s->piece[a] - 1) / s->piece[a];
    }
    s->count = *at++, s->buffers = at, at += s->count;
    const int64_t params = *at++;
    s->params = at, at += params;
  }
  r->other = other, r->repacks = repacks, Py_IncRef(other);
  object *self = PyCapsule_New(r, ROUTINE, drop_routine);
  object *function = self ? PyCFunction_NewEx(&method, self, NULL) : NULL;
  if (self) Py_DecRef(self);
  return function;
}
