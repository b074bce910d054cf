// Runs whole programs: one call from Python, which takes the values and returns the results.
//
// A program is a table of steps over slots of memory: its inputs, its results, and places in an arena. It is
// told by a tape of 64-bit numbers (see programs.py, which writes it). What is used of Python is in its stable
// ABI; of NumPy, the part of its arrays and of its function table that never moves. Declared here, as neither's
// headers need be installed.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { intptr_t references; void *type; } object;
typedef struct {
  object head;
  char *data;
  int rank;
  intptr_t *lengths, *strides;
  object *base, *dtype;
  int flags;
} array;
enum { PACKED = 1, OWNED = 4, ALIGNED = 256, WRITABLE = 1024, METH_O = 8 };

extern char PyList_Type, PyTuple_Type;
extern object *PyExc_TypeError, *PyExc_RuntimeError;
extern void Py_IncRef(object *), Py_DecRef(object *);
extern object *PyTuple_New(intptr_t), *PyTuple_GetItem(object *, intptr_t), *PyList_GetItem(object *, intptr_t);
extern intptr_t PyTuple_Size(object *), PyList_Size(object *);
extern int PyTuple_SetItem(object *, intptr_t, object *), PyObject_IsTrue(object *);
extern object *PyObject_CallObject(object *, object *), *PyErr_Occurred(void), *PyLong_FromLongLong(long long);
extern void PyErr_SetString(object *, const char *), PyErr_Clear(void);
extern double PyFloat_AsDouble(object *);
extern unsigned long long PyLong_AsUnsignedLongLongMask(object *);
extern object *PyCapsule_New(void *, const char *, void (*)(object *));
extern void *PyCapsule_GetPointer(object *, const char *), *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern int PyContext_Enter(object *), PyContext_Exit(object *);
extern object *PyCFunction_NewEx(void *, object *, object *);

// ---- What the rest of the process supplies.

typedef void (*tb_task)(void *, int64_t);
typedef void (*tb_kernel)(void *const *buffers, const void *params, const int64_t *range);
typedef union { double f; int64_t i; uint64_t u; } slot;

static void (*share)(tb_task, void *, int64_t), (*enter)(void), (*leave)(void);
static void *array_type;
static object *(*new_array)(void *, object *, int, const intptr_t *, const intptr_t *, void *, int, object *);
static int (*set_base)(array *, object *);
static object *pool_context;  // NumPy allocates from our pool in it
static void (*sgemm)(), (*dgemm)(), (*sgemv)(), (*dgemv)();
static void (*set_blas_threads)(int);
static int (*blas_threads)(void), blas_users, blas_before;
static void *(*allocate)(void *, size_t);
static void (*release)(void *, void *, size_t);

void tb_connect(void **table, void **runtime, object *context) {
  array_type = table[2];
  new_array = (object * (*)(void *, object *, int, const intptr_t *, const intptr_t *, void *, int, object *))table[94];
  set_base = (int (*)(array *, object *))table[282];
  share = (void (*)(tb_task, void *, int64_t))runtime[0];
  enter = (void (*)(void))runtime[1], leave = (void (*)(void))runtime[2];
  allocate = (void *(*)(void *, size_t))runtime[3], release = (void (*)(void *, void *, size_t))runtime[4];
  pool_context = context;
  Py_IncRef(context);
}

void tb_use_blas(void *s, void *d, void *sv, void *dv, void *set_threads, void *threads) {
  sgemm = (void (*)())s, dgemm = (void (*)())d, sgemv = (void (*)())sv, dgemv = (void (*)())dv;
  set_blas_threads = (void (*)(int))set_threads, blas_threads = (int (*)(void))threads;
}

// While our own threads call BLAS it starts none. Python's lock is held here, by who begins and who ends.
static void share_blas(int begins) {
  if (!set_blas_threads) return;
  if (begins && blas_users++ == 0) blas_before = blas_threads(), set_blas_threads(1);
  if (!begins && --blas_users == 0) set_blas_threads(blas_before);
}

// Say how an array looks from here, for a comparison with what NumPy says.
void tb_look(object *x, int64_t *out) {
  const array *a = (const array *)x;
  out[0] = (int64_t)a->data, out[1] = a->rank, out[2] = a->rank ? a->lengths[0] : 0;
  out[3] = a->rank ? a->strides[0] : 0, out[4] = (int64_t)a->base, out[5] = a->flags, out[6] = (int64_t)a->dtype;
  out[7] = x->type == array_type;
}

// ---- Programs.

enum { KERNEL, PRODUCT, PYTHON };
enum { ARRAY, FLOAT, INTEGER, BOOL };

typedef struct { int64_t param, input; } late;
typedef struct { int64_t slot, offset, rank; intptr_t *lengths, *strides; object *dtype; } view;

typedef struct {
  tb_kernel run;
  int64_t count, *slots, lates, grid[3], piece[3], boxes;
  slot *params;
  late *late;
  void **buffers;
} kernel;

typedef struct {  // c = a @ b: strides of matrices in elements; batch axes outermost first, c packed
  int64_t wide, a, b, c, m, n, k, a_row, a_column, b_row, b_column, rank, count;
  int64_t *lengths, *a_strides, *b_strides, a_offset, b_offset;
  int64_t tall, broad, rows, columns;  // a box, and how many along each axis
  int64_t after;                       // how the next step goes on with a box while it is in cache; 0: not
  kernel *next;
  const char *pa, *pb;
  char *pc;
} product;

typedef struct { object *call; int64_t count, results, *slots; view *operands; } python;

typedef struct {
  int64_t kind, error, group, boxes, drops;  // group: how many kernels from here on are one job
  int64_t *dropped;
  union { kernel kernel; product product; python python; };
} step;

typedef struct { int64_t kind, bits, rank; intptr_t *strides; } input;
typedef struct { int64_t slot, replaces; view shape; } made;

typedef struct {
  int64_t inputs, slots, outputs, mades, steps, arena_size, heavy, running, blas;
  int64_t *offsets, error[3];
  input *input;
  made *made;
  view *output;
  int64_t *output_of;  // the entry of `made` that a result is as a whole, or -1
  step *step;
  void **memory;
  object **holder;
  slot *scalar;
  char *arena;
  object *fail;
} program;

static const char PROGRAM[] = "tensorbus.program", EXECUTABLE[] = "tensorbus.executable";

typedef struct { const int64_t *at; } tape;
static int64_t next(tape *t) { return *t->at++; }
static void *room(int64_t n, size_t size) { return calloc(n > 0 ? (size_t)n : 1, size); }
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
    if (s->kind == KERNEL) free(s->kernel.slots), free(s->kernel.params), free(s->kernel.late), free(s->kernel.buffers);
    if (s->kind == PRODUCT) free(s->product.lengths), free(s->product.a_strides), free(s->product.b_strides);
    if (s->kind == PYTHON) {
      for (int64_t j = 0; j < s->python.count; ++j) drop_view(&s->python.operands[j]);
      free(s->python.operands), free(s->python.slots), Py_DecRef(s->python.call);
    }
  }
  Py_DecRef(p->fail);
  free(p->offsets), free(p->input), free(p->made), free(p->output), free(p->output_of), free(p->step);
  free(p->memory), free(p->holder), free(p->scalar), free(p->arena), free(p);
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
  } else {
    python *q = &s->python;
    q->call = reference(t);
    q->count = next(t), q->operands = room(q->count, sizeof(view));
    for (int64_t k = 0; k < q->count; ++k) q->operands[k] = view_of(t);
    q->results = next(t), q->slots = numbers(t, q->results);
  }
}

// Return a capsule with the program that a tape tells.
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
  p->offsets = numbers(t, p->slots);
  p->made = room(p->mades, sizeof(made));
  for (int64_t k = 0; k < p->mades; ++k) p->made[k].replaces = next(t), p->made[k].shape = view_of(t);
  p->output = room(p->outputs, sizeof(view)), p->output_of = room(p->outputs, 8);
  for (int64_t k = 0; k < p->outputs; ++k) p->output_of[k] = next(t), p->output[k] = view_of(t);
  p->step = room(p->steps, sizeof(step));
  for (int64_t k = 0; k < p->steps; ++k) read_step(t, &p->step[k]);
  p->memory = room(p->slots, sizeof(void *)), p->holder = room(p->slots, sizeof(object *));
  p->scalar = room(p->inputs, sizeof(slot));
  if (p->arena_size && p->arena_size <= 1 << 16) p->arena = aligned_alloc(64, (size_t)(p->arena_size + 63) / 64 * 64);
  return PyCapsule_New(p, PROGRAM, drop_program);
}

// ---- Steps.

static void box_of_kernel(kernel *j, int64_t k) {
  int64_t range[6];
  for (int a = 0; a < 3; ++a) {
    const int64_t count = (j->grid[a] + j->piece[a] - 1) / j->piece[a], at = k % count;
    k /= count;
    range[2 * a] = at * j->piece[a];
    range[2 * a + 1] = range[2 * a] + j->piece[a] < j->grid[a] ? range[2 * a] + j->piece[a] : j->grid[a];
  }
  j->run(j->buffers, j->params, range);
}

static void kernel_box(void *with, int64_t k) { box_of_kernel(with, k); }

static void group_box(void *with, int64_t k) {  // `group` counts down, so that the last one ends the search
  step *s = with;
  while (k >= s->boxes) k -= s->boxes, ++s;
  box_of_kernel(&s->kernel, k);
}

#if defined(__GNUC__) && !defined(__clang__)
#define VECTORIZED __attribute__((optimize("O3")))  // the rest is compiled with less, which takes half the time
#else
#define VECTORIZED
#endif
#define SUM4(v, o) (((v)[o] + (v)[o + 1]) + ((v)[o + 2] + (v)[o + 3]))
#define SUM8(v) (SUM4(v, 0) + SUM4(v, 4))
#define SMALL(T, NAME, SUM)                                                                                            \
  VECTORIZED static void NAME(const product *q, const T *a, const T *b, T *c, int64_t m, int64_t n) {                         \
    const int64_t depth = q->k, stride = q->b_row;                                                                 \
    for (int64_t i = 0; i < m; ++i, a += q->a_row, c += q->n) {                                                    \
      if (q->b_column == 1) {                                                                                      \
        int64_t j = 0;                                                                                             \
        for (; j + 64 <= n; j += 64) {                                                                             \
          T sum[64] = {0};                                                                                         \
          for (int64_t k = 0; k < depth; ++k)                                                                      \
            for (int l = 0; l < 64; ++l) sum[l] += a[k * q->a_column] * b[k * stride + j + l];                     \
          for (int l = 0; l < 64; ++l) c[j + l] = sum[l];                                                          \
        }                                                                                                          \
        for (; j + 8 <= n; j += 8) {                                                                               \
          T sum[8] = {0};                                                                                          \
          for (int64_t k = 0; k < depth; ++k)                                                                      \
            for (int l = 0; l < 8; ++l) sum[l] += a[k * q->a_column] * b[k * stride + j + l];                      \
          for (int l = 0; l < 8; ++l) c[j + l] = sum[l];                                                           \
        }                                                                                                          \
        for (; j < n; ++j) {                                                                                       \
          T sum = 0;                                                                                               \
          for (int64_t k = 0; k < depth; ++k) sum += a[k * q->a_column] * b[k * stride + j];                       \
          c[j] = sum;                                                                                              \
        }                                                                                                          \
      } else {                                                                                                     \
        int64_t j = 0;                                                                                             \
        for (; q->a_column == 1 && stride == 1 && j + 4 <= n; j += 4) {                                            \
          enum { L = 32 / sizeof(T) };                                                                             \
          typedef T lanes __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));                         \
          const T *b0 = b + j * q->b_column, *b1 = b0 + q->b_column, *b2 = b1 + q->b_column, *b3 = b2 + q->b_column;\
          lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                            \
          T t0 = 0, t1 = 0, t2 = 0, t3 = 0;                                                                        \
          int64_t k = 0;                                                                                           \
          for (; k + L <= depth; k += L) {                                                                         \
            const lanes x = *(const lanes *)(a + k);                                                               \
            s0 += x * *(const lanes *)(b0 + k), s1 += x * *(const lanes *)(b1 + k);                                \
            s2 += x * *(const lanes *)(b2 + k), s3 += x * *(const lanes *)(b3 + k);                                \
          }                                                                                                        \
          for (; k < depth; ++k) t0 += a[k] * b0[k], t1 += a[k] * b1[k], t2 += a[k] * b2[k], t3 += a[k] * b3[k];   \
          c[j] = t0 + SUM(s0), c[j + 1] = t1 + SUM(s1), c[j + 2] = t2 + SUM(s2), c[j + 3] = t3 + SUM(s3);          \
        }                                                                                                          \
        for (; j < n; ++j) {                                                                                       \
          T sum = 0;                                                                                               \
          for (int64_t k = 0; k < depth; ++k) sum += a[k * q->a_column] * b[j * q->b_column + k * stride];         \
          c[j] = sum;                                                                                              \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }
#define SUM_OF_4(v) SUM4(v, 0)
SMALL(float, small_float, SUM8)
SMALL(double, small_double, SUM_OF_4)

typedef void (*gemm_s)(int, int, int, int64_t, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t,
                       float, void *, int64_t);
typedef void (*gemm_d)(int, int, int, int64_t, int64_t, int64_t, double, const void *, int64_t, const void *, int64_t,
                       double, void *, int64_t);
typedef void (*gemv_s)(int, int, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t, float, void *,
                       int64_t);
typedef void (*gemv_d)(int, int, int64_t, int64_t, double, const void *, int64_t, const void *, int64_t, double,
                       void *, int64_t);
enum { ROWS = 101, PLAIN = 111, TURNED = 112 };

enum { APART, AS_ROWS, AS_STACK, AS_ONE };

// Run the kernel that reads a product element by element on what a box has made. Its grid: rows of all matrices
// on axis 1, or rows on axis 1 and matrices on axis 2, or all elements on axis 0, where boxes are whole rows.
static void go_on(const product *q, int64_t which, int64_t i, int64_t j, int64_t m, int64_t n) {
  int64_t range[6] = {j, j + n, i, i + m, which, which + 1};
  if (q->after != AS_STACK) range[2] += which * q->m, range[3] += which * q->m, range[4] = 0, range[5] = 1;
  if (q->after == AS_ONE) range[0] = range[2] * q->n, range[1] = range[3] * q->n, range[2] = 0, range[3] = 1;
  q->next->run(q->next->buffers, q->next->params, range);
}

static void multiply(const product *, int64_t, int64_t, int64_t, int64_t, int64_t);

static void product_box(void *with, int64_t box) {
  const product *q = with;
  const int64_t column = box % q->columns, row = box / q->columns % q->rows, which = box / q->columns / q->rows;
  const int64_t i = row * q->tall, j = column * q->broad;
  const int64_t m = i + q->tall < q->m ? q->tall : q->m - i, n = j + q->broad < q->n ? q->broad : q->n - j;
  multiply(q, which, i, j, m, n);
  if (q->after) go_on(q, which, i, j, m, n);
}

static void multiply(const product *q, int64_t which, int64_t i, int64_t j, int64_t m, int64_t n) {
  const int64_t size = q->wide ? 8 : 4;
  int64_t a_at = 0, b_at = 0, rest = which;
  for (int64_t axis = q->rank; axis-- > 0; rest /= q->lengths[axis]) {
    a_at += rest % q->lengths[axis] * q->a_strides[axis];
    b_at += rest % q->lengths[axis] * q->b_strides[axis];
  }
  const char *a = q->pa + (a_at + i * q->a_row) * size, *b = q->pb + (b_at + j * q->b_column) * size;
  char *c = q->pc + (which * q->m * q->n + i * q->n + j) * size;
  if (!sgemm || q->m * q->n * q->k <= 16384) {
    if (q->wide) small_double(q, (const double *)a, (const double *)b, (double *)c, m, n);
    else small_float(q, (const float *)a, (const float *)b, (float *)c, m, n);
    return;
  }
  const int turn_a = q->a_column == 1 ? PLAIN : TURNED, turn_b = q->b_column == 1 ? PLAIN : TURNED;
  const int64_t lead_a = q->a_column == 1 ? q->a_row : q->a_column, lead_b = q->b_column == 1 ? q->b_row : q->b_column;
  if (q->m == 1 && sgemv) {  // c = b' a
    const int turned = turn_b == PLAIN ? TURNED : PLAIN;
    const int64_t tall = turn_b == PLAIN ? q->k : n, wide = turn_b == PLAIN ? n : q->k;
    if (q->wide) ((gemv_d)dgemv)(ROWS, turned, tall, wide, 1, b, lead_b, a, q->a_column, 0, c, 1);
    else ((gemv_s)sgemv)(ROWS, turned, tall, wide, 1, b, lead_b, a, q->a_column, 0, c, 1);
  } else if (q->n == 1 && sgemv) {
    const int64_t tall = turn_a == PLAIN ? m : q->k, wide = turn_a == PLAIN ? q->k : m;
    if (q->wide) ((gemv_d)dgemv)(ROWS, turn_a, tall, wide, 1, a, lead_a, b, q->b_row, 0, c, 1);
    else ((gemv_s)sgemv)(ROWS, turn_a, tall, wide, 1, a, lead_a, b, q->b_row, 0, c, 1);
  } else if (q->wide) {
    ((gemm_d)dgemm)(ROWS, turn_a, turn_b, m, n, q->k, 1, a, lead_a, b, lead_b, 0, c, q->n);
  } else {
    ((gemm_s)sgemm)(ROWS, turn_a, turn_b, m, n, q->k, 1, a, lead_a, b, lead_b, 0, c, q->n);
  }
}

static void ready(program *p, kernel *k) {
  for (int64_t j = 0; j < k->count; ++j) k->buffers[j] = k->slots[j] < 0 ? (void *)p->error : p->memory[k->slots[j]];
  for (int64_t j = 0; j < k->lates; ++j) k->params[k->late[j].param] = p->scalar[k->late[j].input];
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

static int run_steps(program *p) {
  void *thread = NULL;
  int good = 1;
  if (p->blas) share_blas(1);
  if (p->heavy) thread = PyEval_SaveThread(), enter();
  for (step *s = p->step, *end = s + p->steps; good && s < end; s += s->group) {
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
    } else {
      if (thread) leave(), PyEval_RestoreThread(thread);
      if (p->blas) share_blas(0);
      good = call_python(p, &s->python);
      if (p->blas) share_blas(1);
      if (p->heavy) thread = PyEval_SaveThread(), enter();
    }
    if (s->error && p->error[0]) good = -1;
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

enum { HELD_BY_CALLER = 2, FREE = OWNED | WRITABLE | PACKED | ALIGNED };

static object *taken(const made *m, object *values) {
  array *old = (array *)item(values, m->replaces);
  if (references(&old->head) != HELD_BY_CALLER || old->base || (old->flags & FREE) != FREE) return NULL;
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

static object *run(program *p, object *values) {
  if (p->running) {
    PyErr_SetString(PyExc_RuntimeError, "a compiled program runs in one thread at a time");
    return NULL;
  }
  p->running = 1;
  object *results = NULL;
  void *arena = p->arena;
  int good = take_inputs(p, values);
  if (good && !(good = make_outputs(p, values))) failed(p, 0);
  if (good && p->arena_size && !arena && !(arena = allocate(NULL, (size_t)p->arena_size))) good = failed(p, 0);
  if (good) {
    for (int64_t k = p->inputs; k < p->slots; ++k)
      if (p->offsets[k] >= 0) p->memory[k] = (char *)arena + p->offsets[k];
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

enum { MANY = 8 };
typedef struct { object *other, *capsules[MANY]; program *programs[MANY]; int64_t count, inputs; } executable;

static void drop_executable(object *capsule) {
  executable *e = PyCapsule_GetPointer(capsule, EXECUTABLE);
  for (int64_t k = 0; k < e->count; ++k) Py_DecRef(e->capsules[k]);
  Py_DecRef(e->other);
  free(e);
}

static int add(executable *e, object *capsule) {
  program *p = PyCapsule_GetPointer(capsule, PROGRAM);
  if (!p) return 0;
  if (e->count == MANY) Py_DecRef(e->capsules[--e->count]);
  Py_IncRef(capsule);
  e->capsules[e->count] = capsule, e->programs[e->count++] = p;
  return 1;
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
    if (fits(e->programs[k], values)) return run(e->programs[k], values);
  object *given = PyTuple_New(1);
  Py_IncRef(values), PyTuple_SetItem(given, 0, values);
  object *found = PyObject_CallObject(e->other, given);  // a program, and the values to call it with
  Py_DecRef(given);
  if (!found) return NULL;
  object *capsule = PyTuple_GetItem(found, 0), *results = NULL;
  program *p = PyCapsule_GetPointer(capsule, PROGRAM);
  if (p && add(e, capsule)) results = run(p, PyTuple_GetItem(found, 1));
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
