// Results that are too large for the caches go past them: memory need not be read before it is written then.
//
// A kernel that fills a result work-item by work-item fills a block instead, as if it lay where the result does;
// from there the block, which stays in the cache, is moved.

enum { ROOM = 1 << 16, BLOCKS = 2 };  // bytes of a block, and blocks: bytecode.py knows them too

static _Thread_local char blocks[BLOCKS][ROOM] __attribute__((aligned(64)));

static void move_past(char *restrict to, const char *restrict from, int64_t n) {
#if defined __clang__ || defined __AVX__
  typedef float lanes __attribute__((vector_size(32), aligned(32), may_alias));
  typedef float loose __attribute__((vector_size(32), aligned(4), may_alias));
  int64_t k = -(intptr_t)to & 63;
  if (n < 128) k = n;
  memcpy(to, from, (size_t)k);
  for (; k + 64 <= n; k += 64) {
    const lanes a = *(const loose *)(from + k), b = *(const loose *)(from + k + 32);
#ifdef __clang__
    __builtin_nontemporal_store(a, (lanes *)(to + k));
    __builtin_nontemporal_store(b, (lanes *)(to + k + 32));
#else
    __builtin_ia32_movntps256((float *)(to + k), a);
    __builtin_ia32_movntps256((float *)(to + k + 32), b);
#endif
  }
  memcpy(to + k, from + k, (size_t)(n - k));
#else
  memcpy(to, from, (size_t)n);
#endif
}

static void run_past(const kernel *j, const int64_t *range) {
  void *buffers[j->count];
  memcpy(buffers, j->buffers, sizeof buffers);
  int64_t part[6], at = range[0];
  memcpy(part, range, sizeof part);
  for (; at < range[1]; at = part[1]) {
    part[0] = at, part[1] = at + j->stride < range[1] ? at + j->stride : range[1];
    for (int64_t k = 0; k < j->pasts; ++k) buffers[j->past[k].buffer] = blocks[k] - at * j->past[k].bytes;
    j->run(buffers, j->params, part);
    for (int64_t k = 0; k < j->pasts; ++k) {
      const int64_t bytes = j->past[k].bytes;
      move_past((char *)j->buffers[j->past[k].buffer] + at * bytes, blocks[k], (part[1] - at) * bytes);
    }
  }
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_sfence();  // such stores are otherwise not in order with what says that a box is done
#endif
}

// Set whether a kernel's results go past the caches: not those that lie where an operand lies.
static void look_past(kernel *j) {
  j->goes_past = j->pasts > 0;
  for (int64_t k = 0; k < j->pasts; ++k)
    for (int64_t i = 0; i < j->count; ++i)
      if (i != j->past[k].buffer && j->buffers[i] == j->buffers[j->past[k].buffer]) j->goes_past = 0;
}
