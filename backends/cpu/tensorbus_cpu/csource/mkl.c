// Products by MKL, block by block, so that the threads are the device's own. INTEGERS: of bytes, else of bfloat16.
#include <stdint.h>

enum { ROW_MAJOR = 101, ONE_OFFSET = 173 };
typedef int (*tb_threads)(int);
#ifdef INTEGERS
typedef void (*tb_product)(int, int, int, int, int, int, int, float, const void *, int, int8_t, const void *, int, int8_t, float, int32_t *, int, const int32_t *);
typedef int8_t T;
typedef int32_t OUT;
#else
typedef void (*tb_product)(int, int, int, int, int, int, float, const void *, int, const void *, int, float, float *, int);
typedef uint16_t T;
typedef float OUT;
#endif

// Grid (blocks of columns, blocks of rows, matrices); b: MKL's product and what sets its threads, x, y, out. p: rows,
// columns, depth, length of a block; for x and y each: MKL's name of their order, the length of a line of it, the
// stride of matrices, and how many of them take turns.
void tb_gemm(void *const *b, const int64_t *p, const int64_t *range) {
  const int before = ((tb_threads)b[1])(1), depth = (int)p[2];
  for (int64_t matrix = range[4]; matrix < range[5]; ++matrix)
    for (int64_t i = range[2] * p[3]; i < range[3] * p[3] && i < p[0]; i += p[3])
      for (int64_t j = range[0] * p[3]; j < range[1] * p[3] && j < p[1]; j += p[3]) {
        const int rows = (int)(p[0] - i < p[3] ? p[0] - i : p[3]), columns = (int)(p[1] - j < p[3] ? p[1] - j : p[3]);
        const int x_order = (int)p[4], x_line = (int)p[5], y_order = (int)p[8], y_line = (int)p[9];
        const T *x = (const T *)b[2] + matrix % p[7] * p[6] + i * (x_order == 111 ? x_line : 1);
        const T *y = (const T *)b[3] + matrix % p[11] * p[10] + j * (y_order == 111 ? 1 : y_line);
        OUT *out = (OUT *)b[4] + (matrix * p[0] + i) * p[1] + j;
#ifdef INTEGERS
        const int32_t none = 0;
        ((tb_product)b[0])(ROW_MAJOR, x_order, y_order, ONE_OFFSET, rows, columns, depth, 1, x, x_line, 0, y, y_line, 0, 0, out, (int)p[1], &none);
#else
        ((tb_product)b[0])(ROW_MAJOR, x_order, y_order, rows, columns, depth, 1, x, x_line, y, y_line, 0, out, (int)p[1]);
#endif
      }
  ((tb_threads)b[1])(before);
}
