// Sums of panels by tiles of 16 x 16 sums that the processor has (AMX). With EMULATED, tiles are arrays: the same code,
// for processors that have none.

#ifdef EMULATED
static _Thread_local union { T in[TILE / sizeof(T)]; SUM sums[SIDE * SIDE]; } tile[8];
#define TILE_ZERO(t) memset(&tile[t], 0, TILE)
#define TILE_LOAD(t, from) memcpy(&tile[t], from, TILE)
#define TILE_STORE(t, to) memcpy(to, &tile[t], TILE)
#define TILE_DOT(t, a, b) tb_dot(tile[t].sums, tile[a].in, tile[b].in)
static SUM tb_value(T x) {
#ifdef INTEGERS
  return (int8_t)x;
#else
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
#endif
}
static void tb_dot(SUM *sums, const T *a, const T *b) {
  for (int i = 0; i < SIDE; ++i)
    for (int k = 0; k < STEP; ++k)
      for (int j = 0; j < SIDE; ++j)
        sums[i * SIDE + j] += tb_value(a[i * STEP + k]) * tb_value(b[(k / GROUP * SIDE + j) * GROUP + k % GROUP]);
}
static void tb_begin(void) {}
static void tb_end(void) {}
int tb_ready(void) { return 1; }
#else
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from) _tile_loadd(t, from, 64)
#define TILE_STORE(t, to) _tile_stored(t, to, 64)
#ifdef INTEGERS
#define TILE_DOT(t, a, b) _tile_dpbssd(t, a, b)
#else
#define TILE_DOT(t, a, b) _tile_dpbf16ps(t, a, b)
#endif
static void tb_begin(void) {
  static const struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } shapes = {
      .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&shapes);
}
static void tb_end(void) { _tile_release(); }

// Ask the system for tiles, once for all threads; return whether they are to be had.
int tb_ready(void) {
  enum { ASK = 0x1023, TILES = 18 };
  return syscall(SYS_arch_prctl, ASK, TILES) == 0;
}
#endif

static void tb_sum_up(const char *x, const char *y, const char *next, int64_t steps, int64_t rows, SUM *to, int more) {
  enum { AHEAD = 4 * TILE };  // bytes by which the left operand is asked for before it is read
  if (more) {
    TILE_LOAD(0, to); TILE_LOAD(1, to + 256); TILE_LOAD(2, to + 512); TILE_LOAD(3, to + 768);
  } else {
    TILE_ZERO(0); TILE_ZERO(1); TILE_ZERO(2); TILE_ZERO(3);
  }
  for (int64_t s = 0; s < steps; ++s, x += 2 * TILE, y += 2 * TILE) {
    for (int at = 0; at < 2 * TILE; at += 64) __builtin_prefetch(x + AHEAD + at);
    TILE_LOAD(4, x); TILE_LOAD(5, x + TILE); TILE_LOAD(6, y); TILE_LOAD(7, y + TILE);
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
  }
  TILE_STORE(0, to); TILE_STORE(1, to + 256); TILE_STORE(2, to + 512); TILE_STORE(3, to + 768);
}
