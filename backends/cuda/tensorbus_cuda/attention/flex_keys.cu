// The gradients of keys and values: a tile of keys goes over the queries that see it, of all heads that share
// it. Queries of the next tile come while this one is worked on. TB_OF_KEYS and TB_OF_VALUES say which of the two
// sums there is room for in registers.
@head@ {
  constexpr int ROWS = TB_M * 16, THREADS = TB_WARPS * 32, TALL = TB_WARPS * ROWS;
  constexpr int QUERIES = tb_size(TB_N, TB_WIDTH), GRADS = tb_size(TB_N, TB_DEEP);
  extern __shared__ uint4 tb_memory[];
  tb_half_t *const keys_ = tb_first_tile(tb_memory), *const values_ = keys_ + tb_size(TALL, TB_WIDTH);
  tb_half_t *const queries_ = values_ + tb_size(TALL, TB_DEEP), *const grads_ = queries_ + 2 * QUERIES;
  float *const logs_ = (float *)(grads_ + 2 * GRADS), *const less_ = logs_ + 2 * TB_N;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned int rest = blockIdx.x;
  const int tile = rest % (unsigned int)tiles;
  rest /= (unsigned int)tiles;
  const int own = rest % (unsigned int)own_heads, own_batch = rest / (unsigned int)own_heads;
  int block = 0, first = tile * TALL, stop = (int)keys;
#if TB_STATES
  block = tile / (int)tiles_each;
  first = block * (int)key_block + tile % (int)tiles_each * TALL;
  stop = min((block + 1) * (int)key_block, (int)keys);
#endif
  const tb_rows k(key + key_o + own_batch * key_b0 + own * key_b1, key_s0, key_s1, TB_WIDTH);
  const tb_rows v(value + value_o + own_batch * value_b0 + own * value_b1, value_s0, value_s1, TB_DEEP);
  k.copy<TALL, TB_WIDTH, THREADS>(keys_, first, stop - first);
  v.copy<TALL, TB_DEEP, THREADS>(values_, first, stop - first);
  tb_commit();
  const int row = first + warp * ROWS + lane / 4;
  float of_keys[TB_M][TB_OF_KEYS ? tb_padded(TB_WIDTH) / 8 : 1][4];
  float of_values[TB_M][TB_OF_VALUES ? tb_padded(TB_DEEP) / 8 : 1][4];
  tb_clear(of_keys);
  tb_clear(of_values);
  const float factor = scale * TB_LOG2E;
  tb_runs runs;
  runs.length = (int)queries;
  runs.states = nullptr;
  const int batches = (int)each_batch;
  for (int number = 0; number < batches * (int)share; ++number) {
    const int batch = own_batch + number / (int)share, head = own * (int)share + number % (int)share;
#if TB_STATES
    runs.states = states + states_o + batch * states_b0 + head * states_b1 + block * states_s1;
    runs.step = states_s0, runs.blocks = (int)query_blocks, runs.size = (int)query_block;
#endif
    const tb_rows q(query + query_o + batch * query_b0 + head * query_b1, query_s0, query_s1, TB_WIDTH);
    const tb_rows g(grad + grad_o + batch * grad_b0 + head * grad_b1, grad_s0, grad_s1, TB_DEEP);
    const long long begin = ((long long)batch * heads + head) * queries;
    const auto copy = [&](int into) {
      const int from = runs.at, count = runs.stop - runs.at;
      q.copy<TB_N, TB_WIDTH, THREADS>(queries_ + into * QUERIES, from, count);
      g.copy<TB_N, TB_DEEP, THREADS>(grads_ + into * GRADS, from, count);
      for (int i = threadIdx.x; i < TB_N; i += THREADS) {
        const bool there = i < count;
        tb_copy4(logs_ + into * TB_N + i, minus + begin + (there ? from + i : 0), there);
        tb_copy4(less_ + into * TB_N + i, behind + begin + (there ? from + i : 0), there);
      }
    };
    bool more = runs.begin();
    int now = 0;
    if (more) {
      __syncthreads();  // the last tile of the head before may still be read
      copy(0);
    }
    tb_commit();
    while (more) {
      const int at = runs.at, end = runs.stop;
      const bool partial = runs.partial;
      tb_arrived();
      more = runs.advance(TB_N);
      if (more) copy(now ^ 1);
      tb_commit();
      float scores[TB_M][TB_N / 8][4], slopes[TB_M][TB_N / 8][4];
      tb_take_turn();
      tb_products<TB_WIDTH, TALL>(scores, keys_, queries_ + now * QUERIES);
#if TB_OF_KEYS
      tb_products<TB_DEEP, TALL>(slopes, values_, grads_ + now * GRADS);
#endif
      tb_wait<TB_OF_KEYS>();
      tb_pass();
      tb_results_fence(scores);
      // Scores become shares while the gradients of shares are still made.
      const int column = at + lane % 4 * 2;
      const bool some = at + TB_N > end || (TB_MASKED && partial);
#if TB_CHANGES
      float before[TB_M][TB_N / 8][4];
#endif
#pragma unroll
      for (int n = 0; n < TB_N / 8; ++n) {
        const float2 log = *(const float2 *)(logs_ + now * TB_N + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int m = 0; m < TB_M; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float minus_log = e % 2 ? log.y : log.x;
#if TB_CHANGES
            const int i = TB_INSIDE(column + n * 8 + e % 2, queries), j = TB_INSIDE(row + m * 16 + e / 2 * 8, keys);
            before[m][n][e] = scores[m][n][e] * scale;
            const float score = TB_SCORE(before[m][n][e], batch, head, i, j);
            scores[m][n][e] = tb_exp2(fmaf(score, TB_LOG2E, minus_log));
#else
            scores[m][n][e] = tb_exp2(fmaf(scores[m][n][e], factor, minus_log));
#endif
          }
      }
      if (some)
        tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
          const int i = column + n * 8 + e % 2, j = TB_INSIDE(row + m * 16 + e / 2 * 8, keys);
          bool counts = i < end;
          if (TB_MASKED && partial) counts &= TB_COUNTS(batch, head, TB_INSIDE(i, queries), j);
          scores[m][n][e] = counts ? scores[m][n][e] : 0.0f;
        });
#if TB_OF_VALUES
      tb_weighted<TB_DEEP>(of_values, scores, grads_ + now * GRADS);
#endif
#if TB_OF_KEYS
      tb_wait<TB_OF_VALUES>();
      tb_results_fence(slopes);
#pragma unroll
      for (int n = 0; n < TB_N / 8; ++n) {
        const float2 less = *(const float2 *)(less_ + now * TB_N + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int m = 0; m < TB_M; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float changed = scores[m][n][e] * (slopes[m][n][e] - (e % 2 ? less.y : less.x));
#if TB_CHANGES
            const int i = TB_INSIDE(column + n * 8 + e % 2, queries), j = TB_INSIDE(row + m * 16 + e / 2 * 8, keys);
            slopes[m][n][e] = TB_SLOPE(changed, before[m][n][e], batch, head, i, j);
#else
            slopes[m][n][e] = changed;
#endif
            // Of what does not count the derivative may be anything, infinity times 0 included.
            if (some) slopes[m][n][e] = scores[m][n][e] == 0.0f ? 0.0f : slopes[m][n][e];
          }
      }
      tb_weighted<TB_WIDTH>(of_keys, slopes, queries_ + now * QUERIES);
#endif
      tb_wait<0>();
      tb_results_fence(of_values);
      tb_results_fence(of_keys);
      now ^= 1;
    }
  }
  tb_arrived();
  const long long line = ((long long)own_batch * own_heads + own) * keys + first + warp * ROWS;
  const int count = stop - first - warp * ROWS;
  float factors[TB_M][2];
#if TB_OF_KEYS
#pragma unroll
  for (int m = 0; m < TB_M; ++m) factors[m][0] = factors[m][1] = scale;
  tb_store_rows<TB_WIDTH>(dkey + line * TB_WIDTH, of_keys, factors, count);
#endif
#if TB_OF_VALUES
#pragma unroll
  for (int m = 0; m < TB_M; ++m) factors[m][0] = factors[m][1] = 1.0f;
  tb_store_rows<TB_DEEP>(dvalue + line * TB_DEEP, of_values, factors, count);
#endif
}
