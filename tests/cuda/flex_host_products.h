template <int LEFT> static inline void tb_wait() {}
template <int M, int N> static inline void tb_results_fence(float (&)[M][N][4]) {}
static inline void tb_take_turn() {}
static inline void tb_pass() {}
template <int WIDTH, int TALL, int M, int N>
static inline void tb_products(float (&c)[M][N][4], const tb_half_t *a, const tb_half_t *b) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n)
      for (int e = 0; e < 4; ++e) {
        const int row = warp * M * 16 + m * 16 + e / 2 * 8 + lane / 4, other = n * 8 + lane % 4 * 2 + e % 2;
        c[m][n][e] = 0;
        for (int k = 0; k < tb_padded(WIDTH); ++k)
          c[m][n][e] += tb_to_float(a[tb_at<TALL, WIDTH>(row, k)]) * tb_to_float(b[tb_at<8 * N, WIDTH>(other, k)]);
      }
}
template <int WIDTH, int M, int N>
static inline void tb_weighted(float (&c)[M][tb_padded(WIDTH) / 8][4], const float (&weights)[M][N][4],
                               const tb_half_t *b) {
  const int quad = threadIdx.x % 4;
  for (int away = 0; away < 4; ++away)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
        for (int e = 0; e < 4; ++e) {
          const float own = tb_to_float(tb_narrowed(weights[m][n][e]));
          const float w = away ? __shfl_xor_sync(0xffffffffu, own, away) : own;
          const int row = n * 8 + (quad ^ away) * 2 + e % 2;
          for (int d = 0; d < tb_padded(WIDTH) / 8; ++d)
            for (int odd = 0; odd < 2; ++odd)
              c[m][d][e / 2 * 2 + odd] += w * tb_to_float(b[tb_at<8 * N, WIDTH>(row, d * 8 + quad * 2 + odd)]);
        }
}
