// The runtime of the cpu device: threads that sleep between jobs, and an allocator that keeps freed memory.
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

// ---- Threads. A job is a number of boxes, which threads take one after another.
//
// Each begins with a part of its own, the same in every job of as many boxes: what it left in the caches near it is
// found there again. Then it helps with the others' parts, so nobody waits for a thread that has not begun: a job is
// done when all boxes are. A ticket, the job's generation and a part's next box in one word, makes a claim hold for
// one job only.

typedef void (*tb_task)(void *context, int64_t box);

enum { PARTS = 256, LINE = 128 };
enum { BRIEF = 4000, PATIENT = 100000 };  // nanoseconds that idle threads watch: usually, and where jobs come soon
enum { LATE = 100000 };                   // by how much longer than others' a box takes whose thread does not run

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(tb_task) task;
static _Atomic(void *) context;
static struct { _Alignas(LINE) atomic_uint_least64_t ticket; atomic_int_least64_t end; } part[PARTS];
static atomic_int_least64_t boxes, rung;  // rung: when the last job came
static atomic_int bell, done, parts, sleepers, waiting, programs, wanted = 1;
static int started;

#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
// Sleep while a word has the value, for so many nanoseconds at most; 0: until somebody rouses.
static void rest(atomic_int *word, int value, long most) {
  const struct timespec t = {0, most};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most ? &t : NULL, NULL, 0);
}
static void rouse(atomic_int *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }
static int self(void) { return (int)syscall(SYS_gettid); }
static int processor(void) { return sched_getcpu(); }
typedef cpu_set_t processors;
static void read_own(processors *set) { if (sched_getaffinity(0, sizeof *set, set)) CPU_ZERO(set); }
// Move a thread (0: this one) to a processor, of those that it may run on. It may leave again.
static void move(int thread, int to, const processors *usual) {
  processors there;
  if (to < 0 || !CPU_ISSET(to, usual)) return;
  CPU_ZERO(&there);
  CPU_SET(to, &there);
  sched_setaffinity(thread, sizeof there, &there);
  sched_setaffinity(thread, sizeof *usual, usual);
}
// Return the first of some processors that is not taken; -1: there is none.
static int free_one(const unsigned char *taken, int count, const processors *usual) {
  for (int k = 0; k < count && k < CPU_SETSIZE; ++k)
    if (CPU_ISSET(k, usual) && !taken[k]) return k;
  return -1;
}
#else
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void rest(atomic_int *word, int value, long most) {
  (void)most;
  pthread_mutex_lock(&lock);
  while (atomic_load(word) == value) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}
static int self(void) { return 1; }
static int processor(void) { return -1; }
typedef int processors;
static void read_own(processors *set) { *set = 0; }
static void move(int thread, int to, const processors *usual) { (void)thread, (void)to, (void)usual; }
static int free_one(const unsigned char *taken, int count, const processors *usual) {
  return (void)taken, (void)count, (void)usual, -1;
}
#endif

static void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Watch a word for a while; return whether it still has the value.
static int watch(atomic_int *word, int value, int64_t patience) {
  for (int64_t end = now() + patience; atomic_load(word) == value;) {
    for (int k = 0; k < 16 && atomic_load(word) == value; ++k) breathe();
    if (now() > end) return 1;
  }
  return 0;
}

// Where somebody else computes as well. Who is interrupted with a box in hand, on a processor that is not ours alone,
// would hold everybody up until the other's turn is over, some milliseconds: a thread that has nothing left to do gives
// it its own processor. And the system is content with two of our threads on one processor and nobody beside somebody
// else's, where each would have half: the one that comes later goes where none of ours is.
enum { PROCESSORS = 1024 };
static struct { _Alignas(LINE) atomic_int_least64_t since; atomic_int thread; processors usual; } holds[PARTS];
static atomic_uint where[PARTS];  // the processor, above it the generation's last bits
static atomic_int moving;
static atomic_uint moves;  // odd while one is under way
static _Thread_local int mine;

// Note who runs in a place, and where it may; not what a move that has not ended leaves it.
static void note_processor(int place) {
  const int same = mine && atomic_load(&holds[place].thread) == mine;
  if (same && place) return;
  processors usual;
  for (;; breathe()) {
    const unsigned before = atomic_load(&moves);
    if (!(before & 1)) {
      read_own(&usual);
      if (atomic_load(&moves) == before) break;
    }
    if (same) return;
  }
  holds[place].usual = usual;
  atomic_store(&holds[place].thread, mine ? mine : (mine = self()));
}

static void help(void) {
  if (atomic_exchange(&moving, 1)) return;
  const int64_t time = now(), all = atomic_load(&parts);
  const int64_t usual = (time - atomic_load(&rung)) * all / (atomic_load(&done) + 1);
  for (int k = 0; k < all; ++k) {
    int64_t since = atomic_load(&holds[k].since);
    if (!since || time - since < LATE + 2 * usual || !atomic_compare_exchange_strong(&holds[k].since, &since, time))
      continue;
    atomic_fetch_add(&moves, 1);
    move(atomic_load(&holds[k].thread), processor(), &holds[k].usual);
    atomic_fetch_add(&moves, 1);
    break;
  }
  atomic_store(&moving, 0);
}

static void part_ways(uint32_t generation, int place) {
  const int here = processor(), all = atomic_load(&parts);
  const unsigned mark = generation << 10;
  if (here < 0 || here >= PROCESSORS) return;
  atomic_store(&where[place], mark | (unsigned)here);
  int shared = 0;
  if (place)  // the caller stays: all would wait for it
    for (int k = 0; k < all && !shared; ++k) shared = k != place && atomic_load(&where[k]) == (mark | (unsigned)here);
  if (!shared) return;
  unsigned char taken[PROCESSORS] = {0};
  for (int k = 0; k < all; ++k)
    if ((atomic_load(&where[k]) ^ mark) < PROCESSORS) taken[atomic_load(&where[k]) % PROCESSORS] = 1;
  const int there = free_one(taken, PROCESSORS, &holds[place].usual);
  if (there < 0) return;
  atomic_store(&where[place], mark | (unsigned)there);
  move(0, there, &holds[place].usual);
}

// Take boxes of all parts, of one's own first.
static void take(uint32_t generation, int own) {
  const int place = own % PARTS;
  note_processor(place);
  part_ways(generation, place);
  const tb_task run = atomic_load(&task);
  void *const with = atomic_load(&context);
  const int64_t count = atomic_load(&boxes);
  const int all = atomic_load(&parts);
  for (int k = 0; k < all; ++k) {
    const int at = (own + k) % all;
    uint64_t t = atomic_load(&part[at].ticket);
    while ((uint32_t)(t >> 32) == generation && (int64_t)(uint32_t)t < atomic_load(&part[at].end)) {
      if (!atomic_compare_exchange_weak(&part[at].ticket, &t, t + 1)) continue;
      atomic_store(&holds[place].since, now());
      run(with, (int64_t)(uint32_t)t);
      atomic_store(&holds[place].since, 0);
      if (atomic_fetch_add(&done, 1) + 1 == count && atomic_load(&waiting)) rouse(&done, 1);
      t = atomic_load(&part[at].ticket);
    }
  }
}

static void *worker(void *place) {
  for (int soon = 0;;) {
    const int generation = atomic_load(&bell), threads = atomic_load(&wanted);
    if ((intptr_t)place >= threads - 1) {
      rest(&wanted, threads, 0);
      continue;
    }
    take((uint32_t)generation, (int)(intptr_t)place + 1);
    const int64_t since = now();
    if (watch(&bell, generation, soon || atomic_load(&programs) ? PATIENT : BRIEF)) {
      atomic_fetch_add(&sleepers, 1);
      while (atomic_load(&bell) == generation && atomic_load(&done) < atomic_load(&boxes))
        help(), rest(&bell, generation, LATE);
      rest(&bell, generation, 0);
      atomic_fetch_sub(&sleepers, 1);
    }
    soon = atomic_load(&rung) - since < PATIENT;
  }
  return NULL;
}

static void start_workers(int count) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for Python's main thread
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (pthread_t id; started < count; ++started)
    if (pthread_create(&id, &attributes, worker, (void *)(intptr_t)started)) break;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tb_set_threads(int count) {  // who is not wanted rests elsewhere, where no job wakes it instead of another
  atomic_store(&wanted, count);
  rouse(&wanted, INT_MAX), rouse(&bell, INT_MAX);
}

// Run a task on every box. A second job that comes meanwhile runs on its caller's thread alone.
void tb_share(tb_task run, void *with, int64_t count) {
  const int threads = atomic_load(&wanted);
  if (count <= 1 || threads <= 1 || pthread_mutex_trylock(&busy)) {
    for (int64_t k = 0; k < count; ++k) run(with, k);
    return;
  }
  if (started < threads - 1) start_workers(threads - 1);
  const uint32_t generation = (uint32_t)atomic_load(&bell) + 1;
  const int64_t most = count < threads ? count : threads, all = most < PARTS ? most : PARTS;
  const uint64_t ticket = (uint64_t)generation << 32;
  for (int k = 0; k < all; ++k) atomic_store(&part[k].ticket, ticket | UINT32_MAX);  // closed while the job is written
  atomic_store(&task, run), atomic_store(&context, with), atomic_store(&boxes, count), atomic_store(&done, 0);
  for (int k = 0; k < all; ++k) {
    atomic_store(&part[k].end, count * (k + 1) / all);
    atomic_store(&part[k].ticket, ticket | (uint64_t)(count * k / all));
  }
  atomic_store(&parts, (int)all), atomic_store(&rung, now());
  atomic_store(&bell, (int)generation);
  const int awake = (started < threads - 1 ? started : threads - 1) - atomic_load(&sleepers);
  const int need = (int)(count - 1 < threads - 1 ? count - 1 : threads - 1);
  if (need > awake) rouse(&bell, need - awake);
  take(generation, 0);
  for (int seen; (seen = atomic_load(&done)) < count;)
    if (watch(&done, seen, PATIENT)) {
      atomic_store(&waiting, 1);
      help();
      if ((seen = atomic_load(&done)) < count) rest(&done, seen, LATE);
      atomic_store(&waiting, 0);
    }
  pthread_mutex_unlock(&busy);
}

// Between these, jobs follow each other closely: idle threads watch for longer before they sleep.
void tb_enter(void) { atomic_fetch_add(&programs, 1); }
void tb_leave(void) { atomic_fetch_sub(&programs, 1); }

// A kernel's job is a grid of up to three axes, cut into boxes; axis 2 is outermost.

typedef void (*tb_kernel)(void *const *buffers, const void *params, const int64_t *range);

typedef struct {
  tb_kernel kernel;
  void *const *buffers;
  const void *params;
  const int64_t *grid, *piece;
} tb_job;

static void box_of_job(void *with, int64_t k) {
  const tb_job *j = with;
  int64_t range[6];
  for (int a = 0; a < 3; ++a) {
    const int64_t count = (j->grid[a] + j->piece[a] - 1) / j->piece[a], at = k % count;
    k /= count;
    range[2 * a] = at * j->piece[a];
    range[2 * a + 1] = range[2 * a] + j->piece[a] < j->grid[a] ? range[2 * a] + j->piece[a] : j->grid[a];
  }
  j->kernel(j->buffers, j->params, range);
}

void tb_run(tb_kernel kernel, void *const *buffers, const void *params, const int64_t *grid, const int64_t *piece) {
  tb_job job = {kernel, buffers, params, grid, piece};
  int64_t count = 1;
  for (int a = 0; a < 3; ++a) count *= (grid[a] + piece[a] - 1) / piece[a];
  tb_share(box_of_job, &job, count);
}

// A kernel that sets the bytes of its first buffer to 0. Grid (bytes).
void tb_clear(void *const *buffers, const void *params, const int64_t *range) {
  memset((char *)buffers[0] + range[0], 0, (size_t)(range[1] - range[0]));
}

// ---- Memory, as NumPy's allocator. Blocks of MIN_POOLED bytes and more are kept in lists by size when freed.
// They begin where pages do: a processor that has written a little beyond where it reads, but for whole pages, takes
// what it reads next for what it has written, and waits. NumPy's own blocks begin 16 bytes after a page does.

enum { MIN_POOLED = 1 << 18, CLASSES = 8 * 64, PREFIX = 1 << 12, HUGE_PAGE = 1 << 21 };

typedef struct block { struct block *next; int64_t since; } block;  // kept since then
typedef struct { size_t size, capacity; } header;  // before each block; capacity 0: from malloc

static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;
static block *kept[CLASSES];
static size_t reserved, limit = (size_t)1 << 30;
static int64_t idle = 1000000000;  // nanoseconds that a block is kept for

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

// Blocks that nobody asks for go after once or twice that time: what ran then had other sizes.
static void trim_idle(void) {
  static int64_t looked;
  const int64_t time = now(), before = time - idle;
  if (looked > before) return;
  looked = time;
  for (int k = 0; k < CLASSES; ++k)
    for (block **at = &kept[k]; *at;) {
      block *b = *at;
      if (b->since > before) {
        at = &b->next;
        continue;
      }
      *at = b->next;
      reserved -= ((header *)b - 1)->capacity;
      free((char *)b - PREFIX);
    }
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
  if (size < MIN_POOLED) {
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
  } else {
    trim_idle();  // before memory grows
    if (!(p = fresh(capacity))) trim(), p = fresh(capacity);
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
  trim_idle();
  if (reserved + capacity > limit) trim();
  if (capacity <= limit) {
    block *b = p;
    b->next = kept[class_of(capacity)], b->since = now();
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
void tb_set_idle(int64_t nanoseconds) { idle = nanoseconds; }

// What NumPy's PyDataMem_SetHandler takes (NEP 49), and the name of the capsule around it: arrays are let go until the
// very end, when strings of Python's are gone.
const char tb_handler_name[] = "mem_handler";
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
#ifndef __linux__
  pthread_cond_init(&changed, NULL);
#endif
  atomic_store(&sleepers, 0), atomic_store(&waiting, 0), atomic_store(&programs, 0);
  atomic_store(&parts, 0), atomic_store(&moving, 0), atomic_store(&moves, 0);
  for (int k = 0; k < PARTS; ++k) atomic_store(&holds[k].since, 0);
  mine = started = 0;
}

__attribute__((constructor)) static void set_up(void) { pthread_atfork(before_fork, in_parent, in_child); }
