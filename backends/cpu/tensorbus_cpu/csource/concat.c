// Arrays joined along an axis: in each row of the result lie their rows side by side. Elements are bytes.
// What stands before this text gives PARTS. Parameters: the bytes of a row of each. Buffers: the arrays, then the
// result. Grid: rows.

#include <stddef.h>
#include <string.h>

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)

// Copies of a length that is known are moves of registers.
#define ROWS(bytes) for (int64_t k = 0; k < rows; ++k) memcpy(to + k * step, from + k * (bytes), (bytes))

static void copy_rows(char *to, int64_t step, const char *from, int64_t bytes, int64_t rows) {
  switch (bytes) {
    case 1: ROWS(1); break;
    case 2: ROWS(2); break;
    case 4: ROWS(4); break;
    case 8: ROWS(8); break;
    case 16: ROWS(16); break;
    case 32: ROWS(32); break;
    case 64: ROWS(64); break;
    default: ROWS(bytes);
  }
}

enum { BLOCK_BYTES = 1 << 14 };

KERNEL(tb_concat) {
  int64_t step = 0;
  for (int k = 0; k < PARTS; ++k) step += p[k].i;
  const int64_t block = step < BLOCK_BYTES ? BLOCK_BYTES / step : 1;
  for (int64_t row = range[0]; row < range[1]; row += block) {
    const int64_t rows = range[1] - row < block ? range[1] - row : block;
    char *to = (char *)b[PARTS] + row * step;
    for (int k = 0; k < PARTS; ++k) {
      copy_rows(to, step, (const char *)b[k] + row * p[k].i, p[k].i, rows);
      to += p[k].i;
    }
  }
}
