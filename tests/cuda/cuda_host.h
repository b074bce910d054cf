// What generated CUDA C++ uses of the language, in C++17, so that a host's compiler takes and runs it. The threads of
// a block take turns; where they wait for each other, each one has a stack of its own.
#pragma once
#define _XOPEN_SOURCE 700
#undef _FORTIFY_SOURCE  // it holds jumps to other stacks for mistakes
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __launch_bounds__(...)
// Blocks run one after the other: one array serves them all. What a block finds there is not to be relied on.
#define __shared__ static __attribute__((section("tb_shared")))
#define __syncthreads() tb_barrier(__LINE__)
#define __threadfence()

struct tb_three { unsigned int x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
static tb_three threadIdx, blockIdx, blockDim, gridDim;
static const char *tb_wrong;

template <int N> struct tb_packet {
  unsigned int part[N];
  tb_packet &operator=(const tb_packet &from) {
    if (((size_t)this | (size_t)&from) % sizeof part) tb_wrong = "a vector begins where no card could move it";
    memcpy(part, from.part, sizeof part);
    return *this;
  }
};
typedef tb_packet<2> uint2;
typedef tb_packet<4> uint4;

template <typename T, typename F> static inline T tb_bits(F from) {
  static_assert(sizeof(T) == sizeof(F), "the same bits");
  T to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline unsigned int __float_as_uint(float x) { return tb_bits<unsigned int>(x); }
static inline float __uint_as_float(unsigned int x) { return tb_bits<float>(x); }
static inline float __int_as_float(int x) { return tb_bits<float>(x); }
static inline float __double2float_rz(double x) {
  const float near = (float)x;
  return fabs((double)near) > fabs(x) ? nextafterf(near, 0.0f) : near;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// Nobody can come between.
template <typename T> static inline T atomicAdd(T *p, T v) { const T was = *p; *p = was + v; return was; }
template <typename T> static inline T atomicMin(T *p, T v) { const T was = *p; if (v < was) *p = v; return was; }
template <typename T> static inline T atomicMax(T *p, T v) { const T was = *p; if (v > was) *p = v; return was; }
static inline int atomicCAS(int *p, int expected, int v) {
  const int was = *p;
  if (was == expected) *p = v;
  return was;
}

// Instructions, by their names.
static inline void ptx_cvt_rn_f16_f32(unsigned short &to, float x) { to = tb_bits<unsigned short>((_Float16)x); }
static inline void ptx_cvt_f32_f16(float &to, unsigned short x) { to = (float)tb_bits<_Float16>(x); }
static inline void ptx_rcp_approx_ftz_f32(float &to, float x) { to = 1.0f / x; }
static inline void ptx_abs_s32(int &to, int x) { to = x < 0 ? (int)(0u - (unsigned int)x) : x; }

enum { tb_most = 1024, tb_warp = 32, tb_stack = 1 << 16 };
enum tb_state { tb_runs, tb_waits, tb_shuffle_xors, tb_done };
struct tb_thread {
  ucontext_t context;
  jmp_buf place;
  tb_three at;
  tb_state state;
  bool begun;
  int line;  // where it waits
  unsigned int value;  // what it shows to others, then what another one showed
  int mask;
};
static jmp_buf tb_turns;
static tb_thread tb_all[tb_most], *tb_now;

static void tb_leave(tb_state state) {
  tb_now->state = state;
  if (!_setjmp(tb_now->place)) _longjmp(tb_turns, 1);
}
static void tb_barrier(int line) {
  tb_now->line = line;
  tb_leave(tb_waits);
}
template <typename T> static T __shfl_xor_sync(unsigned int, T x, int mask) {
  static_assert(sizeof(T) <= 4, "one register");
  memcpy(&tb_now->value, &x, sizeof x);
  tb_now->mask = mask;
  tb_leave(tb_shuffle_xors);
  memcpy(&x, &tb_now->value, sizeof x);
  return x;
}
static void tb_turn(tb_thread *next) {
  tb_now = next;
  threadIdx = next->at;
  if (_setjmp(tb_turns)) return;
  if (next->begun) _longjmp(next->place, 1);
  next->begun = true;
  setcontext(&next->context);
}
// Run the threads of a warp, from the last one on or from the first, until none can go on without other warps.
static void tb_run(tb_thread *warp, int count, bool backwards) {
  for (;;) {
    for (int n = 0; n < count; ++n) {
      tb_thread *next = &warp[backwards ? count - 1 - n : n];
      if (next->state == tb_runs) tb_turn(next);
    }
    unsigned int shown[tb_warp];
    for (int k = 0; k < count; ++k) {
      if (count < tb_warp || warp[k].state != tb_shuffle_xors || warp[k].mask != warp[0].mask) return;
      shown[k] = warp[k].value;
    }
    for (int k = 0; k < count; ++k) {
      warp[k].value = shown[k ^ warp[0].mask];
      warp[k].state = tb_runs;
    }
  }
}

static void (*tb_kernel)(void **, const char *);
static void **tb_buffers;
static const char *tb_params;
static void tb_begin() {
  for (;;) {
    tb_kernel(tb_buffers, tb_params);
    tb_leave(tb_done);
  }
}

extern char __start_tb_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_tb_shared[] __attribute__((weak, visibility("hidden")));

// Each warp goes as far as it can before the next one, and now the first one leads, now the last one: a barrier too few
// comes to light.
static void tb_block(int count, unsigned int &drawn) {
  for (;;) {
    drawn = drawn * 1103515245u + 12345u;
    const bool backwards = drawn >> 30 & 1u;
    for (int n = 0; n < count; n += tb_warp) {
      const int first = backwards ? (count - 1) / tb_warp * tb_warp - n : n;
      tb_run(tb_all + first, count - first < tb_warp ? count - first : tb_warp, backwards);
    }
    int done = 0;
    for (int k = 0; k < count; ++k) {
      done += tb_all[k].state == tb_done;
      if (tb_all[k].state == tb_shuffle_xors || tb_all[k].state != tb_all[0].state || tb_all[k].line != tb_all[0].line)
        tb_wrong = "some threads wait where others do not";
    }
    if (done == count || tb_wrong) return;
    for (int k = 0; k < count; ++k) tb_all[k].state = tb_runs;
  }
}

// Run a kernel; return what is wrong with it, or nothing.
extern "C" const char *tb_launch(void (*kernel)(void **, const char *), void **buffers, const char *params,
                                 const unsigned int *blocks, const unsigned int *threads) {
  tb_kernel = kernel, tb_buffers = buffers, tb_params = params, tb_wrong = nullptr;
  gridDim = {blocks[0], blocks[1], blocks[2]};
  blockDim = {threads[0], threads[1], threads[2]};
  const unsigned int count = threads[0] * threads[1] * threads[2];
  char *stacks = (char *)malloc((size_t)count * tb_stack);
  for (unsigned int k = 0; k < count; ++k) {
    tb_thread &t = tb_all[k];
    t.at = {k % threads[0], k / threads[0] % threads[1], k / threads[0] / threads[1]};
    t.begun = false;
    t.line = 0;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = stacks + (size_t)k * tb_stack;
    t.context.uc_stack.ss_size = tb_stack;
    makecontext(&t.context, tb_begin, 0);
  }
  unsigned int drawn = 1;
  for (unsigned int z = 0; z < blocks[2]; ++z)
    for (unsigned int y = 0; y < blocks[1]; ++y)
      for (unsigned int x = 0; x < blocks[0] && !tb_wrong; ++x) {
        blockIdx = {x, y, z};
        if (__start_tb_shared) memset(__start_tb_shared, 0xff, __stop_tb_shared - __start_tb_shared);
        for (unsigned int k = 0; k < count; ++k) tb_all[k].state = tb_runs;
        tb_block(count, drawn);
      }
  free(stacks);
  return tb_wrong;
}
