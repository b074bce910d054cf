// Products of small matrices, m by n of them at a time. `q`: the length of sums, then the strides of rows and
// columns of a and of b in elements, then that of the rows of c. A library of its own, as it takes the compiler
// long: it is made while other things are.
#include <stdint.h>

#define SUM4(v, o) (((v)[o] + (v)[o + 1]) + ((v)[o + 2] + (v)[o + 3]))
#define SUM8(v) (SUM4(v, 0) + SUM4(v, 4))
#define SMALL(T, NAME, SUM)                                                                                            \
  void NAME(const int64_t *q, const T *a, const T *b, T *c, int64_t m, int64_t n) {                                    \
    const int64_t depth = q[0], a_row = q[1], a_column = q[2], stride = q[3], b_column = q[4], c_row = q[5];           \
    for (int64_t i = 0; i < m; ++i, a += a_row, c += c_row) {                                                          \
      if (b_column == 1) {                                                                                             \
        int64_t j = 0;                                                                                                 \
        for (; j + 64 <= n; j += 64) {                                                                                 \
          T sum[64] = {0};                                                                                             \
          for (int64_t k = 0; k < depth; ++k)                                                                          \
            for (int l = 0; l < 64; ++l) sum[l] += a[k * a_column] * b[k * stride + j + l];                            \
          for (int l = 0; l < 64; ++l) c[j + l] = sum[l];                                                              \
        }                                                                                                              \
        for (; j + 8 <= n; j += 8) {                                                                                   \
          T sum[8] = {0};                                                                                              \
          for (int64_t k = 0; k < depth; ++k)                                                                          \
            for (int l = 0; l < 8; ++l) sum[l] += a[k * a_column] * b[k * stride + j + l];                             \
          for (int l = 0; l < 8; ++l) c[j + l] = sum[l];                                                               \
        }                                                                                                              \
        for (; j < n; ++j) {                                                                                           \
          T sum = 0;                                                                                                   \
          for (int64_t k = 0; k < depth; ++k) sum += a[k * a_column] * b[k * stride + j];                              \
          c[j] = sum;                                                                                                  \
        }                                                                                                              \
      } else {                                                                                                         \
        int64_t j = 0;                                                                                                 \
        for (; a_column == 1 && stride == 1 && j + 4 <= n; j += 4) {                                                   \
          enum { L = 32 / sizeof(T) };                                                                                 \
          typedef T lanes __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));                             \
          const T *b0 = b + j * b_column, *b1 = b0 + b_column, *b2 = b1 + b_column, *b3 = b2 + b_column;               \
          lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                                \
          T t0 = 0, t1 = 0, t2 = 0, t3 = 0;                                                                            \
          int64_t k = 0;                                                                                               \
          for (; k + L <= depth; k += L) {                                                                             \
            const lanes x = *(const lanes *)(a + k);                                                                   \
            s0 += x * *(const lanes *)(b0 + k), s1 += x * *(const lanes *)(b1 + k);                                    \
            s2 += x * *(const lanes *)(b2 + k), s3 += x * *(const lanes *)(b3 + k);                                    \
          }                                                                                                            \
          for (; k < depth; ++k) t0 += a[k] * b0[k], t1 += a[k] * b1[k], t2 += a[k] * b2[k], t3 += a[k] * b3[k];       \
          c[j] = t0 + SUM(s0), c[j + 1] = t1 + SUM(s1), c[j + 2] = t2 + SUM(s2), c[j + 3] = t3 + SUM(s3);              \
        }                                                                                                              \
        for (; j < n; ++j) {                                                                                           \
          T sum = 0;                                                                                                   \
          for (int64_t k = 0; k < depth; ++k) sum += a[k * a_column] * b[j * b_column + k * stride];                   \
          c[j] = sum;                                                                                                  \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
#define SUM_OF_4(v) SUM4(v, 0)
SMALL(float, tb_small_float, SUM8)
SMALL(double, tb_small_double, SUM_OF_4)
