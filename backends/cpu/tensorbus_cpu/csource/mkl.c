// Products by MKL, block by block, so that the threads are the device's own. INTEGERS: of bytes, else of bfloat16.
#include <stdint.h>
#include <string.h>

enum { ROW_MAJOR = 101, ONE_OFFSET = 173 };
typedef int (*tb_threads)(int);
#ifdef INTEGERS
typedef void (*tb_product)(int, int, int, int, int, int, int, float, const void *, int, int8_t, const void *, int, int8_t, float, int32_t *, int, const int32_t *);
typedef int8_t T;
typedef int32_t SUM;

static inline T narrow(SUM sum) { return (T)(uint8_t)(uint32_t)sum; }
#else
typedef void (*tb_product)(int, int, int, int, int, int, float, const void *, int, const void *, int, float, float *, int);
typedef uint16_t T;
typedef float SUM;

static inline T narrow(SUM sum) {
  uint32_t bits;
  memcpy(&bits, &sum, 4);
  const uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return (T)((bits & 0x7fffffff) > 0x7f800000 ? quiet : nearest);
}
#endif

// Grid (blocks of columns, blocks of rows, matrices); b: MKL's product and what sets its threads, x, y, sums block by
// block, out. p: rows, columns, depth, rows and columns of a block; for x and y each: MKL's name of their order, the
// length of a line of it, the stride of matrices, and how many of them take turns; blocks in a row and in a matrix. The
// sums of a block are narrowed while they are in the cache.
void tb_gemm(void *const *b, const int64_t *p, const int64_t *range) {
  const int before = ((tb_threads)b[1])(1), depth = (int)p[2];
  const int64_t tall = p[3], wide = p[4];
  for (int64_t matrix = range[4]; matrix < range[5]; ++matrix)
    for (int64_t i = range[2] * tall; i < range[3] * tall && i < p[0]; i += tall)
      for (int64_t j = range[0] * wide; j < range[1] * wide && j < p[1]; j += wide) {
        const int rows = (int)(p[0] - i < tall ? p[0] - i : tall), columns = (int)(p[1] - j < wide ? p[1] - j : wide);
        const int x_order = (int)p[5], x_line = (int)p[6], y_order = (int)p[9], y_line = (int)p[10];
        const T *x = (const T *)b[2] + matrix % p[8] * p[7] + i * (x_order == 111 ? x_line : 1);
        const T *y = (const T *)b[3] + matrix % p[12] * p[11] + j * (y_order == 111 ? 1 : y_line);
        SUM *sums = (SUM *)b[4] + (matrix * p[14] + i / tall * p[13] + j / wide) * tall * wide;
        T *out = (T *)b[5] + (matrix * p[0] + i) * p[1] + j;
#ifdef INTEGERS
        const int32_t none = 0;
        ((tb_product)b[0])(ROW_MAJOR, x_order, y_order, ONE_OFFSET, rows, columns, depth, 1, x, x_line, 0, y, y_line, 0, 0, sums, columns, &none);
#else
        ((tb_product)b[0])(ROW_MAJOR, x_order, y_order, rows, columns, depth, 1, x, x_line, y, y_line, 0, sums, columns);
#endif
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) out[r * p[1] + c] = narrow(sums[r * columns + c]);
      }
  ((tb_threads)b[1])(before);
}
