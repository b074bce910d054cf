// The runtime of the cpu device: threads that sleep between jobs, and an allocator that keeps freed memory.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __FLT16_MAX__
const int tb_half = 1;
#else
const int tb_half = 0;
#endif

// ---- Threads. A job is a grid of up to three axes, cut into boxes that threads take one after another.

typedef void (*tb_kernel)(void *const *buffers, const void *params, const int64_t *range);

typedef struct {
  tb_kernel kernel;
  void *const *buffers;
  const void *params;
  const int64_t *grid, *piece;  // the length of each axis, and of a box along it; axis 2 is outermost
  int64_t boxes;
  atomic_int_fast64_t next;
} tb_job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, idle = PTHREAD_COND_INITIALIZER;
static tb_job *current;
static int room, active, started, wanted = 1;

static void work(tb_job *j) {
  int64_t counts[2] = {-(-j->grid[0] / j->piece[0]), -(-j->grid[1] / j->piece[1])}, range[6], k;
  for (k = 0; k < 2; ++k) counts[k] = (j->grid[k] + j->piece[k] - 1) / j->piece[k];
  while ((k = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->boxes) {
    const int64_t at[3] = {k % counts[0], k / counts[0] % counts[1], k / counts[0] / counts[1]};
    for (int a = 0; a < 3; ++a) {
      range[2 * a] = at[a] * j->piece[a];
      range[2 * a + 1] = range[2 * a] + j->piece[a] < j->grid[a] ? range[2 * a] + j->piece[a] : j->grid[a];
    }
    j->kernel(j->buffers, j->params, range);
  }
}

static void *worker(void *unused) {
  pthread_mutex_lock(&lock);
  for (;;) {
    while (room == 0) pthread_cond_wait(&wake, &lock);
    tb_job *job = current;
    --room, ++active;
    pthread_mutex_unlock(&lock);
    work(job);
    pthread_mutex_lock(&lock);
    if (--active == 0) pthread_cond_signal(&idle);
  }
  return unused;
}

static void start_workers(int count) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for Python's main thread
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (pthread_t id; started < count; ++started)
    if (pthread_create(&id, &attributes, worker, NULL)) break;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tb_set_threads(int count) {
  pthread_mutex_lock(&lock);
  wanted = count;
  pthread_mutex_unlock(&lock);
}

// Run a kernel over its grid. A second job that comes meanwhile runs on its caller's thread alone.
void tb_run(tb_kernel kernel, void *const *buffers, const void *params, const int64_t *grid, const int64_t *piece) {
  tb_job job = {.kernel = kernel, .buffers = buffers, .params = params, .grid = grid, .piece = piece, .boxes = 1};
  for (int a = 0; a < 3; ++a) job.boxes *= (grid[a] + piece[a] - 1) / piece[a];
  if (job.boxes == 1 || wanted == 1 || pthread_mutex_trylock(&busy)) {
    work(&job);
    return;
  }
  pthread_mutex_lock(&lock);
  start_workers(wanted - 1);
  current = &job;
  room = wanted - 1 < started ? wanted - 1 : started;
  if (room > job.boxes - 1) room = job.boxes - 1;
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&lock);
  work(&job);
  pthread_mutex_lock(&lock);
  room = 0;
  while (active) pthread_cond_wait(&idle, &lock);
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&busy);
}

// ---- Memory, as NumPy's allocator. Blocks of LEAST bytes and more are kept in lists by size when freed.

enum { LEAST = 1 << 18, CLASSES = 8 * 64, PREFIX = 64, HUGE_PAGE = 1 << 21 };

typedef struct block { struct block *next; } block;
typedef struct { size_t size, capacity; } header;  // before each block; capacity 0: from malloc

static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;
static block *kept[CLASSES];
static size_t reserved, limit = (size_t)1 << 30;

static int class_of(size_t n) {
  const int top = 63 - __builtin_clzl(n);
  return 8 * top + (int)((n >> (top - 3)) & 7);
}

static size_t rounded(size_t n) {  // up to 3 bits after the first, so that blocks fit again
  const size_t step = (size_t)1 << (60 - __builtin_clzl(n));
  return (n + step - 1) / step * step;
}

static header *of(void *p) { return (header *)p - 1; }

static void trim(void) {
  for (int k = 0; k < CLASSES; ++k)
    while (kept[k]) {
      block *b = kept[k];
      kept[k] = b->next;
      free((char *)b - PREFIX);
    }
  reserved = 0;
}

static void *fresh(size_t capacity) {
  const size_t align = capacity >= 2 * HUGE_PAGE ? HUGE_PAGE : PREFIX;
  const size_t total = (capacity + PREFIX + align - 1) / align * align;
  char *base = aligned_alloc(align, total);
#ifdef MADV_HUGEPAGE
  if (base && align == HUGE_PAGE) madvise(base, total, MADV_HUGEPAGE);
#endif
  return base ? base + PREFIX : NULL;
}

void *tb_malloc(void *unused, size_t size) {
  void *p;
  if (size < LEAST) {
    header *h = malloc(size + sizeof(header));
    if (!h) return NULL;
    *h = (header){size, 0};
    return h + 1;
  }
  if (size > (size_t)1 << 60) return NULL;
  const size_t capacity = rounded(size);
  const int k = class_of(capacity);
  pthread_mutex_lock(&memory);
  if ((p = kept[k])) {
    kept[k] = kept[k]->next;
    reserved -= capacity;
  } else if (!(p = fresh(capacity))) {
    trim();
    p = fresh(capacity);
  }
  pthread_mutex_unlock(&memory);
  if (p) *of(p) = (header){size, capacity};
  return p;
}

void tb_free(void *unused, void *p, size_t size) {
  if (!p) return;
  const size_t capacity = of(p)->capacity;
  if (!capacity) {
    free(of(p));
    return;
  }
  pthread_mutex_lock(&memory);
  if (reserved + capacity > limit) trim();
  if (capacity <= limit) {
    block *b = p;
    b->next = kept[class_of(capacity)];
    kept[class_of(capacity)] = b;
    reserved += capacity;
    p = NULL;
  }
  pthread_mutex_unlock(&memory);
  if (p) free((char *)p - PREFIX);
}

void *tb_calloc(void *unused, size_t count, size_t size) {
  if (size && count > SIZE_MAX / 2 / size) return NULL;
  void *p = tb_malloc(unused, count * size);
  return p ? memset(p, 0, count * size) : NULL;
}

void *tb_realloc(void *unused, void *p, size_t size) {
  void *made = tb_malloc(unused, size);
  if (made && p) {
    memcpy(made, p, of(p)->size < size ? of(p)->size : size);
    tb_free(unused, p, 0);
  }
  return made;
}

void tb_empty_cache(void) {
  pthread_mutex_lock(&memory);
  trim();
  pthread_mutex_unlock(&memory);
}

size_t tb_reserved(void) { return reserved; }
void tb_set_limit(size_t bytes) { limit = bytes; }

// What NumPy's PyDataMem_SetHandler takes (NEP 49).
struct {
  char name[127];
  uint8_t version;
  void *context, *(*allocate)(void *, size_t), *(*zeros)(void *, size_t, size_t), *(*resize)(void *, void *, size_t);
  void (*release)(void *, void *, size_t);
} tb_handler = {"tensorbus", 1, NULL, tb_malloc, tb_calloc, tb_realloc, tb_free};

// ---- A forked child has one thread: locks that others held are made anew, workers start again when needed.

static void before_fork(void) { pthread_mutex_lock(&lock), pthread_mutex_lock(&memory); }
static void in_parent(void) { pthread_mutex_unlock(&memory), pthread_mutex_unlock(&lock); }
static void in_child(void) {
  pthread_mutex_init(&memory, NULL), pthread_mutex_init(&lock, NULL), pthread_mutex_init(&busy, NULL);
  pthread_cond_init(&wake, NULL), pthread_cond_init(&idle, NULL);
  current = NULL;
  room = active = started = 0;
}

__attribute__((constructor)) static void set_up(void) { pthread_atfork(before_fork, in_parent, in_child); }
