// The gradients of keys and values: a tile of keys goes over the queries that see it, of all heads that share
// it. Queries of the next tile come while this one is worked on. TB_OF_KEYS and TB_OF_VALUES say which of the two
// sums there is room for in registers.
@head@ {
  constexpr int ROWS = TB_M * 16, THREADS = TB_WARPS * 32, TALL = TB_WARPS * ROWS;
  constexpr int QUERIES = tb_size(TB_N, TB_WIDTH), GRADS = tb_size(TB_N, TB_DEEP);
  extern __shared__ uint4 tb_memory[];
  tb_half_t *const keys_ = tb_first(tb_memory), *const values_ = keys_ + tb_size(TALL, TB_WIDTH);
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
  tb_walk walk;
  walk.length = (int)queries;
  walk.states = nullptr;
  const int batches = (int)each_batch;
  for (int number = 0; number < batches * (int)share; ++number) {
    const int batch = own_batch + number / (int)share, head = own * (int)share + number % (int)share;
#if TB_STATES
    walk.states = states + states_o + batch * states_b0 + head * states_b1 + block * states_s1;
    walk.step = states_s0, walk.blocks = (int)query_blocks, walk.size = (int)query_block;
#endif
    const tb_rows q(query + query_o + batch * query_b0 + head * query_b1, query_s0, query_s1, TB_WIDTH);
    const tb_rows g(grad + grad_o + batch * grad_b0 + head * grad_b1, grad_s0, grad_s1, TB_DEEP);
    const float *const log = lse + lse_o + batch * lse_b0 + head * lse_b1;
    const float *const of_rows = behind + ((long long)batch * heads + head) * queries;
    const auto copy = [&](int into) {
      const int from = walk.at, count = walk.stop - walk.at;
      q.copy<TB_N, TB_WIDTH, THREADS>(queries_ + into * QUERIES, from, count);
      g.copy<TB_N, TB_DEEP, THREADS>(grads_ + into * GRADS, from, count);
      for (int i = threadIdx.x; i < TB_N; i += THREADS) {
        const bool there = i < count;
        tb_copy4(logs_ + into * TB_N + i, there ? log + (from + i) * lse_s0 : log, there);
        tb_copy4(less_ + into * TB_N + i, there ? of_rows + from + i : of_rows, there);
      }
    };
    bool more = walk.begin();
    int now = 0;
    if (more) {
      __syncthreads();  // the last tile of the head before may still be read
      copy(0);
    }
    tb_commit();
    while (more) {
      const int at = walk.at, end = walk.stop;
      const bool partial = walk.partial;
      tb_arrived();
      more = walk.advance(TB_N);
      if (more) copy(now ^ 1);
      tb_commit();
      float scores[TB_M][TB_N / 8][4], slopes[TB_M][TB_N / 8][4];
      tb_products<TB_WIDTH, TALL>(scores, keys_, queries_ + now * QUERIES);
#if TB_OF_KEYS
      tb_products<TB_DEEP, TALL>(slopes, values_, grads_ + now * GRADS);
      tb_wait<0>();
      tb_settle(slopes);
#endif
      tb_wait<0>();
      tb_settle(scores);
      const int column = at + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < TB_N / 8; ++n)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const int lanes = now * TB_N + n * 8 + lane % 4 * 2 + odd, i = TB_INSIDE(column + n * 8 + odd, queries);
          const float found = logs_[lanes], less = less_[lanes];
          const float minus = found == -TB_INFINITY ? found : -found * TB_LOG2E;
#pragma unroll
          for (int m = 0; m < TB_M; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int e = 2 * half + odd, j = TB_INSIDE(row + m * 16 + half * 8, keys);
              const float score = scores[m][n][e] * scale;
              const float made = TB_SCORE(score, batch, head, i, j);
              const float share = tb_exp2(fmaf(made, TB_LOG2E, minus));
              scores[m][n][e] = share;
              if (TB_OF_KEYS)
                slopes[m][n][e] = TB_SLOPE(share * (slopes[m][n][e] - less), score, batch, head, i, j);
            }
        }
      if (at + TB_N > end || (TB_MASKED && partial)) {
#pragma unroll
        for (int m = 0; m < TB_M; ++m)
#pragma unroll
          for (int n = 0; n < TB_N / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int i = column + n * 8 + e % 2, j = TB_INSIDE(row + m * 16 + e / 2 * 8, keys);
              bool counts = i < end;
              if (TB_MASKED && partial) counts &= TB_COUNTS(batch, head, TB_INSIDE(i, queries), j);
              scores[m][n][e] = counts ? scores[m][n][e] : 0.0f;
              if (TB_OF_KEYS) slopes[m][n][e] = counts ? slopes[m][n][e] : 0.0f;
            }
      }
#if TB_OF_VALUES
      tb_weighted<TB_DEEP>(of_values, scores, grads_ + now * GRADS);
#endif
#if TB_OF_KEYS
      tb_weighted<TB_WIDTH>(of_keys, slopes, queries_ + now * QUERIES);
#endif
      tb_wait<0>();
      tb_settle(of_values);
      tb_settle(of_keys);
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
