// What driver.c and bytecode.c use of the process that they are loaded into. Both begin with this and types.c.
//
// Of Python, what is in its stable ABI; of NumPy, the part of its arrays and of its function table that never
// moves. Declared here, as neither's headers need be installed.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
extern int PyErr_CheckSignals(void);
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
static int (*blas_threads)(void), blas_users, blas_before, blas_lost;  // lost: with who had begun, in a fork
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
  if (blas_lost) blas_lost = 0, set_blas_threads(blas_before);
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
